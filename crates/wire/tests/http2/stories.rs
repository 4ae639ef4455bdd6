//! The stories of github.com/http2jp/hpack-test-case: header lists of real sites, as other implementations encode them.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wire::http2::hpack::{Decoder, Encoder, HpackError, Indexing, Literals, TABLE_SIZE};

#[derive(Deserialize)]
struct Story {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    /// The block in hexadecimal digits; none in `raw-data`.
    wire: Option<String>,
    headers: Vec<BTreeMap<String, String>>,
}

impl Case {
    fn fields(&self) -> Vec<(&[u8], &[u8])> {
        self.headers.iter().flatten().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect()
    }
}

/// Returns the stories of each implementation.
fn stories(folder: &Path) -> Vec<(PathBuf, Story)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is a copy of hpack-test-case") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            found.extend(stories(&path));
        } else if path.extension().is_some_and(|end| end == "json") {
            let text = std::fs::read_to_string(&path).expect("it can be read");
            found.push((path, serde_json::from_str(&text).expect("it is a story")));
        }
    }
    found
}

/// Names and values.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Vec::new();
    let end =
        decoder.decode(block, &mut Literals::default(), |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    decoder.end_block(block.len() - end.used)?;
    Ok(fields)
}

#[test]
#[ignore = "needs a copy of hpack-test-case: make hpack-stories DIR=..."]
fn stories_are_decoded_and_encoded() {
    let folder = std::env::var_os("HPACK_STORIES").expect("HPACK_STORIES names the folder");
    let (mut decoded, mut encoded) = (0, 0);
    for (path, story) in stories(Path::new(&folder)) {
        let mut decoder = Decoder::default();
        for (number, case) in story.cases.iter().enumerate() {
            let Some(wire) = &case.wire else { continue };
            let block: Vec<u8> = (0..wire.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&wire[at..at + 2], 16).expect("they are digits"))
                .collect();
            let found = decode(&mut decoder, &block);
            let found = found.unwrap_or_else(|error| panic!("{}, case {number}: {error:?}", path.display()));
            let found: Vec<_> = found.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            assert_eq!(found, case.fields(), "{}, case {number}", path.display());
            decoded += 1;
        }
        for size in [TABLE_SIZE, 200, 0] {
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
            encoder.allow(size);
            for case in &story.cases {
                let mut block = Vec::new();
                encoder.begin(&mut block);
                for (index, (name, value)) in case.fields().into_iter().enumerate() {
                    let indexing = [Indexing::Incremental, Indexing::Without, Indexing::Never][index % 7 / 3];
                    encoder.field(name, value, indexing, &mut block);
                }
                let found = decode(&mut decoder, &block).expect("it is our own");
                let found: Vec<_> = found.iter().map(|(name, value)| (&name[..], &value[..])).collect();
                assert_eq!(found, case.fields(), "{} with a table of {size}", path.display());
                encoded += 1;
            }
        }
    }
    println!("{decoded} blocks decoded, {encoded} encoded");
    assert!(decoded > 10_000 && encoded > 10_000, "the folder has all stories");
}
