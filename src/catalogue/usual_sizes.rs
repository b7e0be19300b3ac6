//! Typical sizes and values for what a model's file leaves open. Sizes are tried one after the other until one runs.

use std::collections::BTreeMap;

use crate::definition::{ANY_SHAPE, BATCH, Dimension, ElementType, Model, TensorSpec, with_dimensions};

/// What an open size measures, as far as shapes and names tell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Height,
    Width,
    Channels,
    /// Tokens, or steps in time.
    Steps,
    /// Samples of audio.
    Sound,
    /// Samples of a piece of audio, for a model with a state.
    Piece,
    SoundChannels,
    Features,
    /// Steps in time, if the features of each are open too.
    Frames,
    /// The features of each step, if the number of steps is open too.
    Bands,
    /// The batch of a state, or the only row of one.
    Rows,
}

/// Typical heights of images, with their widths and channels at the same places.
const HEIGHTS: [usize; 15] = [224, 640, 256, 48, 512, 32, 416, 64, 128, 299, 384, 28, 32, 1024, 32];
const WIDTHS: [usize; 15] = [224, 640, 256, 320, 512, 320, 416, 256, 128, 299, 384, 28, 32, 1024, 100];
const CHANNELS: [usize; 15] = [3, 3, 1, 3, 3, 1, 3, 1, 4, 3, 3, 1, 3, 3, 1];

/// Typical numbers of features of speech, with their steps at the same places: Whisper takes 80 or 128 in each of 3000.
const BANDS: [usize; 15] = [128, 80, 80, 128, 256, 512, 768, 64, 40, 32, 16, 1024, 10, 4, 1];
const FRAMES: [usize; 15] = [128, 100, 3000, 3000, 64, 32, 16, 256, 77, 76, 512, 8, 8, 1, 1];

impl Kind {
    fn of(input: &TensorSpec, place: usize, symbol: &str, model: &Model) -> Self {
        let is_named = |words: &[&str]| {
            let names = [input.name.to_lowercase(), symbol.to_lowercase()];
            words.iter().any(|word| names.iter().any(|name| name.contains(word)))
        };
        // The only input of a model is not a state.
        let is_state = |input: &TensorSpec| model.inputs.len() > 1 && is_state(input);
        let has_state = model.inputs.iter().any(is_state);
        let few = |place: usize| matches!(input.shape.get(place), Some(Dimension::Fixed(1 | 3 | 4)));
        let is_picture = input.shape.len() == 4 && !is_state(input) && !is_named(&["past", "cache"]);
        let is_sound = is_named(&["wav", "audio", "speech", "signal", "pcm", "sound", "sample", "input_values"]);
        let are_steps = is_named(&["seq", "time", "length", "frame", "past"]);
        let are_features = input.name.to_lowercase().contains("feat")
            && input.shape.iter().skip(1).all(|dimension| dimension.fixed().is_none());
        // Of three dimensions: the last one's size for the second one, and the second one's for the last one.
        let other = |place: usize| input.shape.get(3 - place).and_then(Dimension::fixed);
        let symbol = symbol.to_lowercase();
        match (input.shape.len(), place) {
            _ if symbol.contains("height") => Kind::Height,
            _ if symbol.contains("width") => Kind::Width,
            (4, 1 | 2) if is_picture && few(3) && !few(1) => [Kind::Height, Kind::Width][place - 1],
            (4, 1) if is_picture => Kind::Channels,
            (4, 2) if is_picture => Kind::Height,
            (4, 3) if is_picture => Kind::Width,
            _ if is_state(input) && !is_named(&["past", "cache"]) => Kind::Rows,
            _ if !input.dtype.is_floating() => Kind::Steps,
            (2, 1) if has_state => Kind::Piece,
            (3, 1 | 2) if are_features && are_steps => Kind::Frames,
            (3, 1 | 2) if are_features => Kind::Bands,
            (3, 1 | 2) if is_sound && other(place).is_some_and(|size| size > 2) => Kind::Steps,
            (3, 1) if is_sound && other(place).is_none() => Kind::SoundChannels,
            _ if is_sound => Kind::Sound,
            (3, 1) if !is_named(&["channel", "feat"]) => Kind::Steps,
            (3, 2) if input.shape[1].fixed().is_some_and(|size| size > 1) => Kind::Steps,
            (3, 2) if few(1) => Kind::Sound,
            _ if are_steps => Kind::Steps,
            _ => Kind::Features,
        }
    }

    /// The size of attempt `number`.
    fn size(self, number: usize) -> usize {
        let sizes: &[usize] = match self {
            Kind::Height => &HEIGHTS,
            Kind::Width => &WIDTHS,
            Kind::Channels => &CHANNELS,
            Kind::Steps => &[128, 64, 32, 16, 100, 76, 77, 256, 512, 3000, 8, 1],
            Kind::Sound => &[16_000, 1280, 8000, 48_000, 160_000, 512, 400],
            Kind::Piece => &[576, 512, 640, 256, 160, 320, 1280, 1536, 480, 1024, 16_000],
            Kind::SoundChannels => &[1, 2],
            Kind::Frames => &FRAMES,
            Kind::Bands => &BANDS,
            Kind::Features => &[128, 256, 512, 768, 64, 80, 40, 32, 16, 1024, 10, 4, 3, 1],
            Kind::Rows => &[1],
        };
        sizes[number % sizes.len()]
    }
}

/// Shapes without the batch, which are tried if not even the number of dimensions is known.
const FLOATING: [&[usize]; 9] = [
    &[3, 224, 224],
    &[1, 28, 28],
    &[128],
    &[16_000],
    &[1, 16_000],
    &[128, 80],
    &[80, 3000],
    &[3, 640, 640],
    &[128, 64],
];
const WHOLE_NUMBERS: [&[usize]; 3] = [&[128], &[], &[1]];

/// Whether the name has one of `words`, in singular or plural. Words end at signs, at digits and before capitals.
fn has_word(name: &str, words: &[&str]) -> bool {
    let mut spaced = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && spaced.ends_with(char::is_lowercase) {
            spaced.push(' ');
        }
        spaced.push(letter);
    }
    let mut own = spaced.split(|letter: char| !letter.is_alphabetic()).map(str::to_lowercase);
    own.any(|word| words.contains(&word.strip_suffix('s').unwrap_or(&word)))
}

/// Whether a lower-case name is that of cached keys and values, such as `past_key_values.0.key` or `past_0`. The
/// `past_values` of a forecasting model are not.
fn is_past(name: &str) -> bool {
    let is_of_cache = |rest: &str| {
        let is_number = rest.trim_start_matches('_').starts_with(|first: char| first.is_ascii_digit());
        rest.is_empty() || is_number || [".", "_key", "_value_"].iter().any(|start| rest.starts_with(start))
    };
    name.split("past").skip(1).any(is_of_cache)
}

/// Returns true if the input is a state that a call hands to the next one, as far as its name says.
fn is_state(input: &TensorSpec) -> bool {
    let name = input.name.to_lowercase();
    let is_short =
        ["h", "c", "hx", "cx"].iter().any(|start| name.trim_end_matches(['0', '_', '1', 'i', 'n']) == *start);
    let is_named = ["hidden", "cache"].iter().any(|word| name.contains(word));
    input.dtype.is_floating()
        && (is_short || is_named || is_past(&name) || has_word(&input.name, &["state", "cell"]))
        && !name.contains("hidden_states")
        && !name.starts_with("encoder")
}

/// Sets the batch of all inputs to 1 if a state has only that batch, `[layers, 1, features]`. Other inputs may leave
/// their batch open, but only 1 fits the state.
pub(super) fn with_batch_of_states(inputs: Vec<TensorSpec>) -> Vec<TensorSpec> {
    let is_single = |input: &TensorSpec| {
        let sizes: Option<Vec<usize>> = input.shape.iter().map(Dimension::fixed).collect();
        is_state(input) && matches!(sizes.as_deref(), Some([_, 1, _]))
    };
    if !inputs.iter().any(is_single) {
        return inputs;
    }
    with_dimensions(inputs, &BTreeMap::from([(BATCH.to_owned(), 1)]))
}

/// Gives the input values that suit its name, if the file says nothing about them. `is_only`: the model has no other
/// input, so this one is not a state.
pub(super) fn with_usual_values(mut input: TensorSpec, is_only: bool) -> TensorSpec {
    let name = input.name.to_lowercase();
    let is_named = |words: &[&str]| words.iter().any(|word| name.contains(word));
    // A series of speeds is not a setting.
    let is_one =
        |size: &Dimension| *size == Dimension::Fixed(1) || matches!(size, Dimension::Symbol(name) if name == BATCH);
    let is_number = input.shape.iter().all(is_one);
    let is_single = input.shape.iter().all(|dimension| *dimension == Dimension::Fixed(1));
    if input.constant.is_some() || input.below.is_some() || input.dtype == ElementType::Bool {
        return input;
    }
    input.constant = if name == "sr" || is_named(&["sample_rate", "sampling_rate", "samplerate"]) {
        Some(16_000.0)
    } else if input.dtype.is_floating() && is_named(&["thresh"]) {
        Some(0.5)
    } else if input.dtype.is_floating()
        && (is_single
            || is_named(&["mask"])
            || is_number && is_named(&["speed", "temperature", "factor"])
            || has_word(&input.name, &["scale"]))
    {
        Some(1.0)
    } else if !is_only && is_state(&input) {
        Some(0.0)
    } else {
        None
    };
    input
}

/// The model with typical sizes in place of open ones, the likeliest sizes first. Empty if no size is open.
pub fn attempts(model: &Model, sequence: Option<usize>) -> Vec<Model> {
    let open = model.open_dimensions(sequence);
    if open.is_empty() {
        return Vec::new();
    }
    let mut attempts: Vec<Model> = Vec::new();
    for number in 0..2 * HEIGHTS.len() {
        let rows = if number < HEIGHTS.len() { Dimension::Symbol(BATCH.into()) } else { Dimension::Fixed(1) };
        let mut sizes = BTreeMap::new();
        let with_shape = |input| with_shape(input, number % HEIGHTS.len(), &rows);
        let mut inputs: Vec<TensorSpec> = model.inputs.iter().map(with_shape).collect();
        let mut batches: BTreeMap<String, Dimension> = BTreeMap::new();
        for input in &model.inputs {
            for (place, dimension) in input.shape.iter().enumerate() {
                let Dimension::Symbol(symbol) = dimension else { continue };
                if !open.contains(&symbol.as_str()) || is_known_sum(symbol, model) || symbol == ANY_SHAPE {
                    continue;
                }
                match Kind::of(input, place, symbol, model) {
                    Kind::Rows => drop(batches.insert(symbol.clone(), rows.clone())),
                    kind => drop(sizes.entry(symbol.clone()).or_insert(kind.size(number))),
                }
            }
        }
        // Other inputs with the symbol of a state's batch have the same batch.
        for dimension in inputs.iter_mut().flat_map(|input| &mut input.shape) {
            if let Dimension::Symbol(symbol) = dimension
                && let Some(batch) = batches.get(symbol)
            {
                *dimension = batch.clone();
            }
        }
        let longest = sizes.values().max().map(|size| *size as f64);
        let mut inputs = with_dimensions(inputs, &sizes);
        // An input with the length of each sample of a padded batch.
        let is_length =
            |input: &&mut TensorSpec| !input.dtype.is_floating() && input.name.to_lowercase().contains("len");
        inputs.iter_mut().filter(is_length).for_each(|input| input.constant = input.constant.or(longest));
        let attempt = model.clone().with_inputs(inputs);
        let is_whole = attempt.open_dimensions(sequence).is_empty();
        if is_whole && !attempts.iter().any(|other| other.inputs == attempt.inputs) {
            attempts.push(attempt);
        }
    }
    attempts
}

/// Whether a size is a sum of numbers and of sizes that are also dimensions of inputs by themselves.
fn is_known_sum(symbol: &str, model: &Model) -> bool {
    let is_known = |term: &str| {
        let alone = Dimension::Symbol(term.into());
        term.parse::<usize>().is_ok() || model.inputs.iter().any(|input| input.shape.contains(&alone))
    };
    symbol.contains('+') && symbol.split('+').all(|term| is_known(term.trim()))
}

/// The input with typical sizes and this batch, if its file does not say how many dimensions it has.
fn with_shape(input: &TensorSpec, number: usize, rows: &Dimension) -> TensorSpec {
    if !input.has_any_shape() {
        return input.clone();
    }
    let shapes: &[&[usize]] = if input.dtype.is_floating() { &FLOATING } else { &WHOLE_NUMBERS };
    let sizes = shapes[number % shapes.len()].iter().map(|&size| Dimension::Fixed(size));
    let shape = std::iter::once(rows.clone()).chain(sizes).collect();
    TensorSpec { shape, ..input.clone() }
}

/// The flags that give the open sizes of a model the values of an attempt. A sum of known sizes has no flag, because it
/// follows from theirs. Any other sum, and a size whose name has a comma, is named by its input and place.
pub fn flags(model: &Model, attempt: &Model) -> String {
    let mut flags: Vec<String> = Vec::new();
    for (input, chosen) in model.inputs.iter().zip(&attempt.inputs) {
        if input.shape.len() != chosen.shape.len() || input.constant != chosen.constant {
            flags.push(format!("--input {}", shell_word(&chosen.to_string())));
            continue;
        }
        for (place, (open, size)) in input.shape.iter().zip(&chosen.shape).enumerate() {
            let mut symbol = open.to_string();
            if open == size || size.fixed().is_none() || is_known_sum(&symbol, model) {
                continue;
            }
            if symbol.contains([',', '+']) {
                symbol = format!("{}.{place}", input.name);
            }
            let flag = format!("--dim {}", shell_word(&format!("{symbol}={size}")));
            if !flags.contains(&flag) {
                flags.push(flag);
            }
        }
    }
    flags.join(" ")
}

/// The text as a word of a command line, in quotes if a shell would change it.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-=/,:%".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(inputs: &[&str]) -> Model {
        let is_only = inputs.len() == 1;
        let inputs = inputs.iter().map(|text| with_usual_values(text.parse().unwrap(), is_only)).collect::<Vec<_>>();
        Model::of_tensors("m", inputs, Vec::new())
    }

    fn texts(model: &Model) -> Vec<String> {
        model.inputs.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sizes_suit_what_the_inputs_are() {
        for (inputs, first) in [
            (&["x:f32[batch,3,h,w]"][..], &["x:f32[batch,3,224,224]"][..]),
            (&["image:f32[batch,height,width,3]"], &["image:f32[batch,224,224,3]"]),
            (
                &["ids:i64[batch,n]<30522", "mask:i64[batch,n]=1"],
                &["ids:i64[batch,128]<30522", "mask:i64[batch,128]=1"],
            ),
            (
                &["input:f32[batch,sequence]", "state:f32[2,state.1,128]", "sr:i64[]"],
                &["input:f32[batch,576]", "state:f32[2,batch,128]=0", "sr:i64[]=16000"],
            ),
            (&["waveforms:f32[batch,N]", "lens:i64[batch]"], &["waveforms:f32[batch,16000]", "lens:i64[batch]=16000"]),
            (
                &["ids:i64[batch,s]", "past:f32[batch,4,p,8]", "m:i64[batch,p + s]"],
                &["ids:i64[batch,128]", "past:f32[batch,4,128,8]=0", "m:i64[batch,256]"],
            ),
            (&["x:f32[...]"], &["x:f32[batch,3,224,224]"]),
            (
                &["audio_signal:f32[batch,80,t]", "length:i64[batch]"],
                &["audio_signal:f32[batch,80,128]", "length:i64[batch]=128"],
            ),
            (&["speech:f32[batch,t,560]"], &["speech:f32[batch,128,560]"]),
            (&["input_values:f32[batch,channels,num_samples]"], &["input_values:f32[batch,1,16000]"]),
        ] {
            assert_eq!(texts(&attempts(&model(inputs), None)[0]), first);
        }
        assert!(attempts(&model(&["x:f32[batch,3,8,8]"]), None).is_empty());
        assert!(attempts(&model(&["x:i64[batch,sequence]"]), Some(32)).is_empty());
    }

    #[test]
    fn sizes_that_are_usual_together_are_tried_together() {
        let has = |open: &str, sized: &str| attempts(&model(&[open]), None).iter().any(|it| texts(it) == [sized]);
        assert!(has("x:f32[batch,c,h,w]", "x:f32[batch,1,28,28]"));
        let features = "input_features:f32[batch,feature_size,encoder_sequence_length]";
        for bands in [80, 128] {
            assert!(has(features, &format!("input_features:f32[batch,{bands},3000]")), "{bands}");
        }
    }

    #[test]
    fn what_only_begins_or_ends_as_a_state_or_a_scale_has_values_as_others() {
        let constants = |inputs: &[&str]| model(inputs).inputs.iter().map(|input| input.constant).collect::<Vec<_>>();
        for only in ["state:f32[batch,8]", "cell_image:f32[batch,3,256,256]"] {
            assert_eq!(constants(&[only]), [None], "{only}");
        }
        let others = ["past_values:f32[batch,512,7]", "grayscale:f32[batch,1,224,224]", "excellent:f32[batch,2]"];
        assert_eq!(constants(&others), [None; 3]);
        let states = ["lstmStates:f32[2,1,8]", "cell_0:f32[8]", "past_key_values.0.key:f32[b,4,p,8]", "past_0:f32[8]"];
        assert_eq!(constants(&states), [Some(0.0); 4]);
        assert_eq!(constants(&["x:f32[8]", "noise_scale:f32[2]"]), [None, Some(1.0)]);
    }

    #[test]
    fn states_have_the_rows_of_the_batch_and_then_one() {
        let attempts = attempts(&model(&["x:f32[batch,t]", "h:f32[1,h.1,64]"]), None);
        let states: Vec<String> = attempts.iter().map(|attempt| attempt.inputs[1].to_string()).collect();
        assert_eq!((states[0].as_str(), states[states.len() - 1].as_str()), ("h:f32[1,batch,64]=0", "h:f32[1,1,64]=0"));
    }

    #[test]
    fn an_unknown_shape_has_an_open_batch_and_then_one_row() {
        let attempts = attempts(&model(&["x:f32[...]"]), None);
        let batches = attempts.iter().map(Model::fixed_batch).collect::<Vec<_>>();
        assert_eq!(batches, [[None; FLOATING.len()], [Some(1); FLOATING.len()]].concat());
        assert_eq!(texts(&attempts[FLOATING.len()]), ["x:f32[1,3,224,224]"]);
    }

    #[test]
    fn a_size_that_a_state_and_another_input_share_is_one_size() {
        let attempts = attempts(&model(&["x:f32[batch,s,4]", "h0:f32[1,s,8]"]), None);
        assert_eq!(texts(&attempts[0]), ["x:f32[batch,batch,4]", "h0:f32[1,batch,8]=0"]);
    }

    #[test]
    fn the_batch_of_a_state_is_that_of_the_model() {
        let fixed = |inputs: &[&str]| {
            let inputs = inputs.iter().map(|text| text.parse().unwrap()).collect();
            with_batch_of_states(inputs).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(fixed(&["x:f32[batch,3,t]", "h0:f32[4,1,64]"]), ["x:f32[1,3,t]", "h0:f32[4,1,64]"]);
        for open in [["x:f32[batch,3]", "h0:f32[4,batch,64]"], ["x:f32[batch,3]", "mean:f32[4,1,64]"]] {
            assert_eq!(fixed(&open), open);
        }
    }

    #[test]
    fn the_flags_say_what_was_taken() {
        let open = model(&["x:f32[batch,3,h,x.3]", "y:f32[...]"]);
        let first = &attempts(&open, None)[0];
        assert_eq!(flags(&open, first), "--dim h=224 --dim x.3=224 --input 'y:f32[batch,3,224,224]'");
        let mut sums = model(&["ids:i64[batch,s]", "m:i64[batch,p + s]", "past:f32[batch,4,p,8]", "q:i64[batch,n]"]);
        sums.inputs[3].shape[1] = Dimension::Symbol("Max(1, n)".into());
        let first = &attempts(&sums, None)[0];
        assert_eq!(flags(&sums, first), "--dim s=128 --dim p=128 --dim q.1=128");
        let of_unknown = model(&["ids:i64[batch,s]", "m:i64[batch,p + s]"]);
        assert_eq!(flags(&of_unknown, &attempts(&of_unknown, None)[0]), "--dim s=128 --dim m.1=128");
    }
}
