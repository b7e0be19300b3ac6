//! What a variant takes over from its original: sizes and values of inputs, judge, tolerance, family and modality.

use crate::definition::{BATCH, Dimension, Model, TensorSpec};

/// Gives a variant what it lacks and the original, `first`, has. If its file leaves sizes open, its inputs get the
/// original's sizes, by name or else by position. Sizes and types of its own stay, such as f16 instead of f32.
pub fn inherit_inputs(model: &mut Model, first: &Model) {
    let is_open = |input: &TensorSpec| {
        let is_symbol = |size: &Dimension| matches!(size, Dimension::Symbol(name) if name != BATCH);
        input.shape.iter().any(is_symbol)
    };
    if model.inputs.len() == first.inputs.len() && model.inputs.iter().any(is_open) {
        let size = |(own, first): (&Dimension, &Dimension)| own.fixed().map_or_else(|| first.clone(), Dimension::Fixed);
        let input = |(own, first): (&TensorSpec, &TensorSpec)| {
            // An archive says neither types nor shapes.
            let dtype = if own.has_any_shape() { first.dtype } else { own.dtype };
            let shape = match own.shape.len() == first.shape.len() {
                true => own.shape.iter().zip(&first.shape).map(size).collect(),
                false => first.shape.clone(),
            };
            TensorSpec { name: own.name.clone(), dtype, shape, ..first.clone() }
        };
        // Another exporter may write the same inputs in another order.
        let named = |own: &TensorSpec| first.inputs.iter().find(|input| input.name == own.name);
        let by_name: Option<Vec<&TensorSpec>> = model.inputs.iter().map(named).collect();
        let firsts = by_name.unwrap_or_else(|| first.inputs.iter().collect());
        let inputs = model.inputs.iter().zip(firsts).map(input).collect();
        let has_own = model.inputs.iter().any(|own| !own.has_any_shape());
        *model = model.clone().with_inputs(inputs);
        model.batch_of_sizes = if has_own { model.batch_of_sizes } else { first.batch_of_sizes };
    }
    // Variants are compared on the same values, even if a file hides the table that an input indexes.
    let mut inputs = model.inputs.clone();
    for input in &mut inputs {
        if let Some(first) = first.inputs.iter().find(|it| it.name == input.name && it.dtype == input.dtype) {
            // One of the tables may have fewer rows.
            input.below = input.below.zip(first.below).map(|(own, first)| own.min(first)).or(first.below);
            input.constant = first.constant;
        }
    }
    *model = model.clone().with_inputs(inputs);
    model.judge = model.judge.or(first.judge);
    model.tolerance = model.tolerance.or(&first.tolerance);
    if model.family == model.name {
        model.family.clone_from(&first.family);
    }
    if model.modality == "unknown" {
        model.modality.clone_from(&first.modality);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Judge;

    #[test]
    fn another_form_has_the_sizes_and_the_judge_of_the_first() {
        let spec = |text: &str| Model::of_tensors("net", vec![text.parse().unwrap()], Vec::new());
        let mut first = spec("x:f32[batch,3,640,640]");
        (first.judge, first.family, first.modality) = (Some(Judge::Segmentation), "unet".into(), "image".into());
        let mut other =
            Model { family: "net".into(), modality: "unknown".into(), ..spec("x:f32[batch,3,height,width]") };
        inherit_inputs(&mut other, &first);
        assert_eq!(other.inputs[0].to_string(), "x:f32[batch,3,640,640]");
        assert_eq!((other.judge, other.family.as_str(), other.modality.as_str()), (first.judge, "unet", "image"));
        let mut own = Model { judge: Some(Judge::Depth), family: "mine".into(), ..other };
        inherit_inputs(&mut own, &first);
        assert_eq!((own.judge, own.family.as_str()), (Some(Judge::Depth), "mine"));
    }

    #[test]
    fn another_form_keeps_the_types_and_sizes_that_its_own_file_says() {
        let model = |inputs: &[&str]| {
            let inputs = inputs.iter().map(|text| text.parse().unwrap()).collect();
            Model::of_tensors("net", inputs, Vec::new())
        };
        let first = model(&["x:f32[batch,3,48,w]", "ids:i64[batch,n]<30522"]);
        let inherited = |inputs: &[&str]| {
            let mut other = model(inputs);
            inherit_inputs(&mut other, &first);
            other.inputs.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let narrower = inherited(&["x:f16[batch,3,h,w]", "tokens:i32[1,n]"]);
        assert_eq!(narrower, ["x:f16[batch,3,48,w]", "tokens:i32[1,n]<30522"]);
        let unknown = inherited(&["x:f32[...]", "y:f32[...]"]);
        assert_eq!(unknown, ["x:f32[batch,3,48,w]", "y:i64[batch,n]<30522"]);
        let sized = model(&["x:f32[frames,80]"]).with_inputs(model(&["x:f32[128,80]"]).inputs);
        let mut archive = model(&["x:f32[...]"]);
        inherit_inputs(&mut archive, &sized);
        assert_eq!(archive.fixed_batch(), Some(1));
        assert_eq!(
            inherited(&["ids:i64[batch,n]", "x:f16[batch,3,h,w]"]),
            ["ids:i64[batch,n]<30522", "x:f16[batch,3,48,w]"]
        );
        let whole = ["x:f16[batch,3,8,8]", "ids:i64[batch,5]"];
        assert_eq!(inherited(&whole), ["x:f16[batch,3,8,8]", "ids:i64[batch,5]<30522"]);
    }
}
