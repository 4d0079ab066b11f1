//! `[length]` of `fermata.toml`: what it says of the axis along which requests differ in length, on
//! top of what the model's file shows.

use std::collections::BTreeMap;
use std::path::Path;

use fermata_engine::{Length, Padding, Signature, TensorSpec};
use serde::Deserialize;

use crate::error::RepositoryError;

/// What the file says of the length; nothing, in most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LengthSettings {
    /// Which axis of each input and output that has the length; found in the model's file, if it is
    /// empty.
    #[serde(default)]
    axis: BTreeMap<String, usize>,
    /// Whether requests are padded; those of a model with a mask are, if it is not said.
    pad: Option<bool>,
    /// What stands behind the end of inputs, where it is not zero.
    #[serde(default)]
    fill: BTreeMap<String, i64>,
    /// The longest request that is taken.
    longest: Option<usize>,
}

impl LengthSettings {
    /// The signature with the length that these settings make of the one that it has.
    pub(crate) fn apply(
        &self,
        file: &Path,
        mut signature: Signature,
    ) -> Result<Signature, RepositoryError> {
        if *self == Self::default() {
            return Ok(signature);
        }
        let refuse = |key: &str, reason: String| {
            RepositoryError::key(file, format!("length.{}", key.escape_default()), reason)
        };
        let found = signature.length.take();
        let mut length = match (self.axis.is_empty(), found) {
            (false, _) => {
                self.declared(&signature).map_err(|(key, reason)| refuse(&key, reason))?
            }
            (true, Some(found)) => found,
            (true, None) => {
                let reason = "missing: the model's file does not show which axis is the length";
                return Err(refuse("axis", reason.to_owned()));
            }
        };
        match self.pad {
            None => {}
            Some(false) => length.padding = None,
            Some(true) => {
                self.check_outputs(&signature, &length).map_err(|reason| refuse("pad", reason))?;
                let fill = vec![0; signature.inputs.len()];
                length.padding.get_or_insert(Padding { fill });
            }
        }
        for (name, &value) in &self.fill {
            let key = format!("fill.{name}");
            let Some(at) = place(&signature.inputs, name).filter(|&at| length.inputs[at].is_some())
            else {
                return Err(refuse(&key, "no input of this name has the length".to_owned()));
            };
            let Some(padding) = &mut length.padding else {
                let reason = "nothing is padded: add length.pad = true";
                return Err(refuse(&key, reason.to_owned()));
            };
            let datatype = signature.inputs[at].datatype;
            if datatype.whole_number(value).is_none() {
                return Err(refuse(&key, format!("{value} is no {datatype}")));
            }
            padding.fill[at] = value;
        }
        match self.longest {
            None => {}
            Some(0) => return Err(refuse("longest", "0 leaves no request".to_owned())),
            Some(longest) => length.longest = longest,
        }
        signature.length = Some(length);
        Ok(signature)
    }

    /// The length by the axes that are named. The error has the key.
    fn declared(&self, signature: &Signature) -> Result<Length, (String, String)> {
        let Signature { inputs, outputs, .. } = signature;
        let mut length = Length {
            inputs: vec![None; inputs.len()],
            outputs: vec![None; outputs.len()],
            longest: usize::MAX,
            padding: None,
        };
        for (name, &axis) in &self.axis {
            let wrong = |reason: String| (format!("axis.{name}"), reason);
            let (spec, told) = match (place(inputs, name), place(outputs, name)) {
                (Some(at), _) => (&inputs[at], &mut length.inputs[at]),
                (None, Some(at)) => (&outputs[at], &mut length.outputs[at]),
                (None, None) => {
                    return Err(wrong("the model has no input or output of this name".to_owned()));
                }
            };
            if spec.shape.get(axis) != Some(&-1) {
                let shape = &spec.shape;
                let batch = if signature.max_batch > 0 { ", without the batch" } else { "" };
                return Err(wrong(format!("{axis} is no free axis (from 0) of {shape:?}{batch}")));
            }
            *told = Some(axis);
        }
        match length.inputs.iter().any(Option::is_some) {
            true => Ok(length),
            false => Err(("axis".to_owned(), "no input is named".to_owned())),
        }
    }

    /// Refuses to pad where it is not known how outputs are cut back.
    fn check_outputs(&self, signature: &Signature, length: &Length) -> Result<(), String> {
        if signature.max_batch == 0 {
            return Err("the model takes one request at a time".to_owned());
        }
        // Who names axes has named those of the outputs too.
        let unknown = |(spec, axis): &(&TensorSpec, &Option<usize>)| {
            self.axis.is_empty() && axis.is_none() && spec.shape.contains(&-1)
        };
        match signature.outputs.iter().zip(&length.outputs).find(unknown) {
            None => Ok(()),
            Some((spec, _)) => Err(format!(
                "output '{}' is {:?}: name in length.axis all inputs and outputs that have the \
                 length",
                spec.name, spec.shape
            )),
        }
    }
}

fn place(specs: &[TensorSpec], name: &str) -> Option<usize> {
    specs.iter().position(|spec| spec.name == name)
}

#[cfg(test)]
mod tests {
    use fermata_engine::DataType;

    use super::*;

    fn spec(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
        TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
    }

    /// A model without a mask, whose file shows the length of its inputs.
    fn tagger() -> Signature {
        Signature {
            max_batch: 8,
            inputs: vec![spec("ids", DataType::Int32, &[-1]), spec("style", DataType::Fp32, &[4])],
            outputs: vec![spec("tags", DataType::Int8, &[-1]), spec("all", DataType::Fp32, &[3])],
            length: Some(Length {
                inputs: vec![Some(0), None],
                outputs: vec![Some(0), None],
                longest: usize::MAX,
                padding: None,
            }),
        }
    }

    fn apply(text: &str, signature: Signature) -> Result<Option<Length>, String> {
        let settings: LengthSettings = toml::from_str(text).unwrap();
        let applied = settings.apply(Path::new("f"), signature);
        applied.map(|signature| signature.length).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_stays() {
        assert_eq!(apply("", tagger()), Ok(tagger().length));
        let none = Signature { length: None, ..tagger() };
        assert_eq!(apply("", none), Ok(None));
    }

    #[test]
    fn padding_is_switched_on_and_off() {
        let on =
            apply("pad = true\nfill = { ids = -1 }\nlongest = 512", tagger()).unwrap().unwrap();
        assert_eq!((on.padding, on.longest), (Some(Padding { fill: vec![-1, 0] }), 512));
        let mut masked = tagger();
        masked.length.as_mut().unwrap().padding = Some(Padding { fill: vec![0, 0] });
        assert_eq!(apply("pad = false", masked.clone()).unwrap().unwrap().padding, None);
        let filled = apply("fill = { ids = 7 }", masked).unwrap().unwrap();
        assert_eq!(filled.padding, Some(Padding { fill: vec![7, 0] }));
    }

    #[test]
    fn axes_are_named_where_the_file_does_not_show_them() {
        let hidden = Signature { length: None, ..tagger() };
        let named = apply("axis = { ids = 0, tags = 0 }\npad = true", hidden.clone());
        let named = named.unwrap().unwrap();
        assert_eq!((named.inputs, named.outputs), (vec![Some(0), None], vec![Some(0), None]));
        assert!(named.padding.is_some());
        let apart = apply("axis = { ids = 0 }", hidden).unwrap().unwrap();
        assert_eq!((apart.outputs, apart.padding), (vec![None, None], None));
    }

    #[test]
    fn mistakes_are_told_by_their_key() {
        let hidden = || Signature { length: None, ..tagger() };
        let mut unclear = tagger();
        unclear.length.as_mut().unwrap().outputs = vec![None, None];
        let single = Signature { max_batch: 0, ..tagger() };
        for (text, signature, message) in [
            ("pad = true", hidden(), "f: length.axis: missing: the model's file does not show"),
            ("axis = { x = 0 }", hidden(), "f: length.axis.x: the model has no input or output"),
            (
                "axis = { ids = 1 }",
                hidden(),
                "f: length.axis.ids: 1 is no free axis (from 0) of [-1], without the batch",
            ),
            ("axis = { style = 0 }", hidden(), "f: length.axis.style: 0 is no free axis"),
            ("axis = { tags = 0 }", hidden(), "f: length.axis: no input is named"),
            ("pad = true", unclear, "f: length.pad: output 'tags' is [-1]: name in length.axis"),
            ("pad = true", single, "f: length.pad: the model takes one request at a time"),
            ("fill = { ids = 1 }", tagger(), "f: length.fill.ids: nothing is padded"),
            ("pad = true\nfill = { style = 1 }", tagger(), "f: length.fill.style: no input of"),
            (
                "pad = true\nfill = { ids = 3000000000 }",
                tagger(),
                "f: length.fill.ids: 3000000000 is no INT32",
            ),
            ("longest = 0", tagger(), "f: length.longest: 0 leaves no request"),
        ] {
            let said = apply(text, signature).unwrap_err();
            assert!(said.starts_with(message) && !said.contains('\n'), "{said}");
        }
    }
}
