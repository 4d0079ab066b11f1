//! `config.pbtxt`: the protobuf text format, or JSON, into Triton's message. What the values mean is checked
//! elsewhere.

use std::path::Path;
use std::str::Chars;
use std::sync::OnceLock;

use fermata_protocol::proto;
use miette::Diagnostic;
use prost_reflect::text_format::ParseError;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use super::error::{RepositoryError, in_one_line, line_of, written_in};

/// Reads the text of `file`.
pub(super) fn from_text(file: &Path, text: &str) -> Result<proto::ModelConfig, RepositoryError> {
    let spelled = with_colons(text);
    let parsed = DynamicMessage::parse_text_format(descriptor(), &spelled);
    let message = parsed.map_err(|error| {
        // Only what is missing at the end of the text has no label.
        let label = error.labels().and_then(|mut labels| labels.next());
        let line = line_of(&spelled, label.map_or(spelled.len(), |label| label.offset()));
        let reason = match written_in(text, line) {
            None => reason(&error),
            Some(written) => format!("{}: '{written}'", reason(&error)),
        };
        RepositoryError::Syntax { file: file.to_owned(), line, reason }
    })?;
    transcode(&message).map_err(|reason| RepositoryError::layout(file, reason))
}

/// The same text, line by line, with a colon between each name and the list after it. The format lets it be left
/// out before a list of messages, as all of Triton's examples do, and our parser does not.
fn with_colons(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len() + 16);
    let mut characters = text.chars();
    let mut after_name = false;
    while let Some(character) = characters.next() {
        if character == '[' && after_name {
            spelled.push(':');
        }
        spelled.push(character);
        match character {
            '#' => push_until(&mut spelled, &mut characters, '\n'),
            '"' | '\'' => {
                push_until(&mut spelled, &mut characters, character);
                after_name = false;
            }
            _ if character.is_whitespace() => {}
            _ => after_name = character.is_ascii_alphanumeric() || character == '_',
        }
    }
    spelled
}

/// Copies a string or a comment up to its end. Only a string can have an escaped one.
fn push_until(spelled: &mut String, characters: &mut Chars<'_>, end: char) {
    while let Some(character) = characters.next() {
        spelled.push(character);
        if character == end {
            return;
        }
        if character == '\\' && end != '\n' {
            spelled.extend(characters.next());
        }
    }
}

/// Reads JSON, as it comes with a request to load a model.
pub(super) fn from_json(json: &str) -> Result<proto::ModelConfig, RepositoryError> {
    let refuse = |reason: String| RepositoryError::Override { what: "config".to_owned(), reason };
    let mut reader = serde_json::Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(descriptor(), &mut reader)
        .and_then(|message| reader.end().map(|()| message))
        .map_err(|error| refuse(in_one_line(&error.to_string())))?;
    transcode(&message).map_err(refuse)
}

fn descriptor() -> MessageDescriptor {
    static DESCRIPTOR: OnceLock<MessageDescriptor> = OnceLock::new();
    let read = || {
        let pool = DescriptorPool::decode(proto::DESCRIPTORS).expect("the build wrote descriptors");
        pool.get_message_by_name("inference.ModelConfig").expect("the protocol has the message")
    };
    DESCRIPTOR.get_or_init(read).clone()
}

fn transcode(message: &DynamicMessage) -> Result<proto::ModelConfig, String> {
    message.transcode_to().map_err(|error| in_one_line(&error.to_string()))
}

/// The parser names messages in full, which the writer of a file need not know.
fn reason(error: &ParseError) -> String {
    in_one_line(&error.to_string())
        .replace("'inference.", "'")
        .replace("not found for message", "unknown in")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        from_text(Path::new("config.pbtxt"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_typo_is_told_with_its_line() {
        assert_eq!(
            refused("name: \"m\"\nmax_batch_sise: 8\n"),
            "config.pbtxt: line 2: field 'max_batch_sise' unknown in 'ModelConfig': 'max_batch_sise: 8'"
        );
        let text = "input [\n  {\n    name: \"x\"\n    data_type: TYPE_FLOAT32\n  }\n]";
        assert_eq!(
            refused(text),
            "config.pbtxt: line 4: value 'TYPE_FLOAT32' was not found for enum 'DataType': 'data_type: TYPE_FLOAT32'"
        );
        assert!(refused("max_batch_size: \"8\"").contains("line 1: expected an integer"));
        assert!(refused("input {\n name: \"x\"\n").contains("line 3: expected '}'"));
        assert!(
            refused("max_batch_size: 1\nmax_batch_size: 2")
                .contains("line 2: 'max_batch_size' is already set")
        );
        assert!(refused("max_batch_size: 99999999999").contains("out of range"));
        assert!(refused("\u{e9}").contains("line 1: invalid token"));
    }

    #[test]
    fn triton_s_ways_of_writing_are_read() {
        let text = r#"
            # a comment
            platform: "onnxruntime_onnx"  max_batch_size: 8
            input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] }, { name: "y", data_type: TYPE_STRING, dims: 1 } ]
            output { name: "z"; data_type: TYPE_INT64; dims: [ 1 ]; label_filename: 'labels.txt' }
            version_policy: { specific { versions: [ 1, 3 ] } }
            instance_group [ { count: 2 kind: KIND_CPU } ]
            parameters { key: "k" value: { string_value: "v" } }
            dynamic_batching { }
        "#;
        let config = from_text(Path::new("config.pbtxt"), text).unwrap();
        assert_eq!(config.input[0].dims, [3, -1]);
        assert_eq!(config.input[1].data_type(), proto::DataType::TypeString);
        assert_eq!(config.output[0].label_filename, "labels.txt");
        assert_eq!(config.parameters["k"].string_value, "v");
        assert_eq!(
            from_text(Path::new("config.pbtxt"), "").unwrap(),
            proto::ModelConfig::default()
        );
    }

    #[test]
    fn json_is_read_with_either_kind_of_names() {
        let config = from_json(
            r#"{"name": "m", "maxBatchSize": 4, "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": ["3"]}]}"#,
        );
        let config = config.unwrap();
        assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (4, &[3][..]));
        let error = from_json("{\"nam\": 1}").unwrap_err().to_string();
        assert!(
            error.starts_with("config: ") && error.contains("nam") && !error.contains('\n'),
            "{error}"
        );
        assert!(from_json("{} {}").is_err());
    }

    #[test]
    fn a_colon_before_a_list_may_be_left_out() {
        for (text, spelled) in [
            ("input [", "input :["),
            ("dims: [1]", "dims: [1]"),
            ("input # [\n[", "input # [\n:["),
            ("a: \"x [\\\" [\" b[", "a: \"x [\\\" [\" b:["),
            ("a: 'x' [", "a: 'x' ["),
            ("# it's\ninput[", "# it's\ninput:["),
            ("a \"unended [", "a \"unended ["),
        ] {
            assert_eq!(with_colons(text), spelled);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", json in ".{0,100}") {
            let _ = from_text(Path::new("config.pbtxt"), &text);
            let _ = from_json(&json);
        }

        #[test]
        fn no_words_of_the_format_make_it_panic(words in proptest::collection::vec(word(), 0..40)) {
            if let Err(error) = from_text(Path::new("config.pbtxt"), &words.join(" ")) {
                proptest::prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }

    fn word() -> impl proptest::strategy::Strategy<Value = &'static str> {
        proptest::sample::select(vec![
            "input",
            "output",
            "name",
            "dims",
            "max_batch_size",
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            ";",
            "\"x\"",
            "'",
            "-1",
            "8",
            "1e400",
            "0x7f",
            "TYPE_FP32",
            "parameters",
            "key",
            "value",
            "<",
            ">",
            "#",
            "\n",
            "\"\\xff\"",
            "inf",
            "dynamic_batching",
            "sequence_batching",
            "priority_queue_policy",
            "/",
            "\u{e9}",
            "input:",
            "data_type:",
        ])
    }
}
