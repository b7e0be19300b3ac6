//! Finds the module of the model to which an operator belongs.
//!
//! An operator that reads a parameter belongs to the parameter's module. For other operators, the interpreter knows the
//! modules whose code calls them. Networks that are traced as one function have no such modules.

use std::collections::HashMap;

use tch::CModule;

use crate::definition::CaseFailure;

/// The names of a model's modules.
pub struct Modules {
    /// The module of each parameter, by the address of its data.
    of_parameters: HashMap<usize, String>,
}

impl Modules {
    /// Reads the modules of archives. Their weights have to be in place already.
    pub fn new(modules: &[CModule]) -> Result<Self, CaseFailure> {
        let mut of_parameters = HashMap::new();
        for module in modules {
            for (name, parameter) in module.named_parameters()? {
                if let Some((module, _)) = name.rsplit_once('.') {
                    of_parameters.entry(parameter.data_ptr() as usize).or_insert_with(|| module.to_owned());
                }
            }
        }
        Ok(Modules { of_parameters })
    }

    /// The module of each operator of a call, in the order of the lines that `describe` in `operators.cpp` writes.
    pub fn of_operators(&self, description: &str) -> Vec<Option<String>> {
        let lines: Vec<(Vec<&str>, Option<&String>)> = description.lines().map(|line| self.read(line)).collect();
        let mut known = HashMap::new();
        for (callers, parameter) in &lines {
            known.extend(parameter.and_then(|module| aligned(callers, module)).into_iter().flatten());
        }
        let module = |(callers, parameter): &(Vec<&str>, Option<&String>)| match parameter {
            Some(module) if aligned(callers, module).is_some() => Some((*module).clone()),
            _ => path(callers, &known),
        };
        lines.iter().map(module).collect()
    }

    /// The modules that call an operator, from the outermost inwards, and the module of the first parameter among its
    /// inputs.
    fn read<'a>(&self, line: &'a str) -> (Vec<&'a str>, Option<&String>) {
        let (callers, addresses) = line.split_once('\t').unwrap_or((line, ""));
        // Such as `TOP(Net)::forward/layer1(Sequential)::forward/`. A module's call of its own function is SELF; free
        // functions have no module.
        let callers = callers.split('/').filter_map(|caller| Some(caller.split_once('(')?.0));
        let callers = callers.filter(|name| !["", "TOP", "SELF", "INSTANCE_NAME_UNKNOWN"].contains(name));
        let parameter = addresses.split('\t').find_map(|address| self.of_parameters.get(&address.parse().ok()?));
        (callers.collect(), parameter)
    }
}

/// The full path of each caller, if all callers are on the path of `module`. Lists of modules are never called, so the
/// callers `encoder` and `0` become `encoder.layer.0`.
fn aligned<'a>(callers: &[&'a str], module: &str) -> Option<Vec<(Vec<&'a str>, String)>> {
    let parts: Vec<&str> = module.split('.').collect();
    let mut end = parts.len();
    let mut paths = Vec::new();
    for length in (1..=callers.len()).rev() {
        end = parts[..end].iter().rposition(|part| *part == callers[length - 1])?;
        paths.push((callers[..length].to_vec(), parts[..=end].join(".")));
    }
    Some(paths)
}

/// The path of the innermost caller. If no parameter has revealed it, it is joined from the callers' names.
fn path(callers: &[&str], known: &HashMap<Vec<&str>, String>) -> Option<String> {
    let (last, outer) = callers.split_last()?;
    let outer = || path(outer, known).map_or((*last).to_owned(), |outer| format!("{outer}.{last}"));
    Some(known.get(callers).cloned().unwrap_or_else(outer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_the_module_of_its_parameter_or_of_its_callers() {
        let parameters = [(16, "encoder.layer.0.query"), (32, "embeddings.word"), (48, "classifier")];
        let modules = Modules { of_parameters: parameters.map(|(address, name)| (address, name.to_owned())).into() };
        let description = "\
            TOP(Net)::forward/encoder(Encoder)::forward/0(Layer)::forward/query(Linear)::forward/\t8\t16\n\
            TOP(Net)::forward/encoder(Encoder)::forward/0(Layer)::forward/\t8\t9\n\
            TOP(Net)::forward/encoder(Encoder)::forward/1(Layer)::forward/SELF(Layer)::act/::gelu/\n\
            TOP(Net)::forward/decoder(Linear)::forward/\t32\n\
            TOP(Net)::forward/\t8\t48\n\
            TOP(Net)::forward/\t8\n\
            \n";
        let expected = [
            Some("encoder.layer.0.query"),
            Some("encoder.layer.0"),
            Some("encoder.1"),
            // It shares the weights of the embedding.
            Some("decoder"),
            Some("classifier"),
            None,
            None,
        ];
        assert_eq!(modules.of_operators(description), expected.map(|module| module.map(str::to_owned)));
    }
}
