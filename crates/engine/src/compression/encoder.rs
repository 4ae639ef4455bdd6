//! Encoders of the content codings. They take bytes, and append encoded bytes to a vector.
//!
//! The window of each is at most 64 KiB, so that the encoder of a long response takes a small and bounded amount of
//! memory ([`memory_of`]). Most pages and JSON documents are shorter, and a larger window gains little for others.

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};
use flate2::{Compress, Compression, FlushCompress};
use std::io;
use wire::files::Coding;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

/// The number of bytes by which the output is extended at a time.
const OUTPUT: usize = 8 << 10;

/// The base 2 logarithm of the window of Brotli and Zstandard.
const WINDOW_LOG: u32 = 16;

/// The base 2 logarithm of the number of entries in each of Zstandard's tables: a quarter of the level's default, which
/// is made for a window of 2 MiB.
const ZSTD_TABLE_LOG: u32 = 15;

/// The effort of each encoder. docs/compression.md has the sizes and times. Brotli takes 34 MB from quality 5 on.
const GZIP_LEVEL: u32 = 5;
const BROTLI_QUALITY: u32 = 4;
const ZSTD_LEVEL: i32 = 3;

/// Returns the maximum number of bytes of memory that an encoder takes.
pub(super) fn memory_of(coding: Coding) -> usize {
    match coding {
        Coding::Identity => 0,
        Coding::Gzip => 400 << 10,
        Coding::Brotli => 1200 << 10,
        Coding::Zstd => 768 << 10,
    }
}

/// Returns the cost of encoding one byte, in units of the meter.
pub(super) fn work_of(coding: Coding) -> u64 {
    match coding {
        Coding::Identity => 0,
        Coding::Gzip => 32,
        Coding::Brotli => 64,
        Coding::Zstd => 12,
    }
}

/// The amount of output that has to be written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushPoint {
    /// The encoder may keep some input, because more follows.
    More,
    /// The output must suffice to decode all input so far.
    Flushed,
    /// The body has ended.
    End,
}

/// The encoder of one body.
pub(super) struct ContentEncoder {
    state: EncoderState,
    /// True if input has arrived since the last flush.
    has_unflushed: bool,
}

enum EncoderState {
    Gzip(Box<Compress>),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(CCtx<'static>),
}

impl ContentEncoder {
    /// Creates an encoder. Returns `None` for the identity coding, or if an allocation fails.
    pub(super) fn new(coding: Coding) -> Option<Self> {
        let state = match coding {
            Coding::Identity => return None,
            // gzip has a fixed window of 32 KiB.
            Coding::Gzip => EncoderState::Gzip(Box::new(Compress::new_gzip(Compression::new(GZIP_LEVEL), 15))),
            Coding::Brotli => EncoderState::Brotli(Box::new(brotli_state())),
            Coding::Zstd => {
                let mut context = CCtx::try_create()?;
                context.set_parameter(CParameter::CompressionLevel(ZSTD_LEVEL)).ok()?;
                context.set_parameter(CParameter::WindowLog(WINDOW_LOG)).ok()?;
                context.set_parameter(CParameter::HashLog(ZSTD_TABLE_LOG)).ok()?;
                context.set_parameter(CParameter::ChainLog(ZSTD_TABLE_LOG)).ok()?;
                EncoderState::Zstd(context)
            }
        };
        Some(Self { state, has_unflushed: false })
    }

    /// Encodes `input`, and appends the output that is ready to `out`.
    ///
    /// # Errors
    /// If the encoder fails for lack of memory. The body cannot be continued then.
    pub(super) fn write(&mut self, input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.has_unflushed |= !input.is_empty();
        self.run(input, FlushPoint::More, out)
    }

    /// Appends everything that is needed to decode the input so far.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if !std::mem::take(&mut self.has_unflushed) {
            return Ok(());
        }
        self.run(&[], FlushPoint::Flushed, out)
    }

    /// Appends the end of the body.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.run(&[], FlushPoint::End, out)
    }

    /// Prepares the encoder for another body.
    ///
    /// # Errors
    /// If the encoder cannot be reused.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        self.has_unflushed = false;
        match &mut self.state {
            EncoderState::Gzip(gzip) => gzip.reset(),
            // The library has no way to reuse its memory.
            EncoderState::Brotli(brotli) => **brotli = brotli_state(),
            EncoderState::Zstd(zstd) => {
                zstd.reset(ResetDirective::SessionOnly).map_err(|_| failed())?;
            }
        }
        Ok(())
    }

    fn run(&mut self, input: &[u8], point: FlushPoint, out: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.state {
            EncoderState::Gzip(gzip) => run_gzip(gzip, input, point, out),
            EncoderState::Brotli(brotli) => run_brotli(brotli, input, point, out),
            EncoderState::Zstd(zstd) => run_zstd(zstd, input, point, out),
        }
    }
}

fn brotli_state() -> BrotliEncoderStateStruct<StandardAlloc> {
    let mut state = BrotliEncoderStateStruct::new(StandardAlloc::default());
    state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, BROTLI_QUALITY);
    state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, WINDOW_LOG);
    state
}

fn run_gzip(gzip: &mut Compress, input: &[u8], point: FlushPoint, out: &mut Vec<u8>) -> io::Result<()> {
    let flush = match point {
        FlushPoint::More => FlushCompress::None,
        FlushPoint::Flushed => FlushCompress::Sync,
        FlushPoint::End => FlushCompress::Finish,
    };
    let mut used = 0;
    loop {
        out.reserve(OUTPUT);
        let (before_in, before_out) = (gzip.total_in(), out.len());
        gzip.compress_vec(&input[used..], out, flush).map_err(|_| failed())?;
        // At most the length of the input is used, so the number fits a usize.
        used += usize::try_from(gzip.total_in() - before_in).unwrap_or_default();
        let has_room = out.len() < out.capacity();
        // If room is left, the encoder has nothing more to write now.
        if used == input.len() && (has_room || out.len() == before_out) {
            return Ok(());
        }
    }
}

fn run_brotli(
    brotli: &mut BrotliEncoderStateStruct<StandardAlloc>,
    input: &[u8],
    point: FlushPoint,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let operation = match point {
        FlushPoint::More => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        FlushPoint::Flushed => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        FlushPoint::End => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut used) = (input.len(), 0);
    loop {
        let start = out.len();
        out.resize(start + OUTPUT, 0);
        let (mut room, mut written) = (OUTPUT, 0);
        let is_done = brotli.compress_stream(
            operation,
            &mut left,
            input,
            &mut used,
            &mut room,
            &mut out[start..],
            &mut written,
            &mut None,
            &mut |_, _, _, _| (),
        );
        out.truncate(start + written);
        if !is_done {
            return Err(failed());
        }
        if left == 0 && !brotli.has_more_output() {
            return Ok(());
        }
    }
}

fn run_zstd(zstd: &mut CCtx<'static>, input: &[u8], point: FlushPoint, out: &mut Vec<u8>) -> io::Result<()> {
    let directive = match point {
        FlushPoint::More => ZSTD_EndDirective::ZSTD_e_continue,
        FlushPoint::Flushed => ZSTD_EndDirective::ZSTD_e_flush,
        FlushPoint::End => ZSTD_EndDirective::ZSTD_e_end,
    };
    let mut input = InBuffer::around(input);
    loop {
        out.reserve(OUTPUT);
        let start = out.len();
        let left = zstd
            .compress_stream2(&mut OutBuffer::around_pos(out, start), &mut input, directive)
            .map_err(|_| failed())?;
        if input.pos() == input.src.len() && (left == 0 || point == FlushPoint::More) {
            return Ok(());
        }
    }
}

fn failed() -> io::Error {
    io::Error::from(io::ErrorKind::OutOfMemory)
}

impl std::fmt::Debug for ContentEncoder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ContentEncoder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Returns the bytes that can be decoded from `encoded`, whose end may be missing.
    fn decoded(coding: Coding, encoded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Identity => plain.extend_from_slice(encoded),
            // If the end is missing, the error comes after everything that can be decoded.
            Coding::Gzip => drop(flate2::read::GzDecoder::new(encoded).read_to_end(&mut plain)),
            Coding::Brotli => drop(brotli::Decompressor::new(encoded, 4096).read_to_end(&mut plain)),
            Coding::Zstd => {
                let mut context = zstd_safe::DCtx::create();
                let mut input = InBuffer::around(encoded);
                loop {
                    plain.reserve(OUTPUT);
                    let start = plain.len();
                    context.decompress_stream(&mut OutBuffer::around_pos(&mut plain, start), &mut input).unwrap();
                    if plain.len() == start && input.pos() == encoded.len() {
                        break;
                    }
                }
            }
        }
        plain
    }

    fn text() -> Vec<u8> {
        let line =
            |number: u32| format!("{{\"id\": {number}, \"name\": \"user {}\"}},\n", number.wrapping_mul(2_654_435_761));
        (0..8).map(line).collect::<String>().into_bytes()
    }

    const CODINGS: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

    #[test]
    fn test_all_that_was_flushed_can_be_decoded_at_every_split() {
        let text = text();
        for coding in CODINGS {
            let mut encoder = ContentEncoder::new(coding).unwrap();
            for split in 0..=text.len() {
                let mut out = Vec::new();
                encoder.write(&text[..split], &mut out).unwrap();
                encoder.flush(&mut out).unwrap();
                assert_eq!(decoded(coding, &out), text[..split], "{coding:?}, split at {split}");
                let flushed = out.len();
                encoder.flush(&mut out).unwrap();
                assert_eq!(out.len(), flushed, "nothing is left to flush");
                encoder.write(&text[split..], &mut out).unwrap();
                encoder.finish(&mut out).unwrap();
                assert_eq!(decoded(coding, &out), text, "{coding:?}, split at {split}");
                encoder.reset().unwrap();
            }
        }
    }

    #[test]
    fn test_long_and_empty_bodies_are_encoded_whole() {
        let long: Vec<u8> =
            (0..3_000_000u32).map(|number| (number.wrapping_mul(number) >> 13).to_le_bytes()[0]).collect();
        for coding in CODINGS {
            for body in [&long[..], &[]] {
                let mut encoder = ContentEncoder::new(coding).unwrap();
                let mut out = Vec::new();
                for part in body.chunks(100_000) {
                    encoder.write(part, &mut out).unwrap();
                }
                encoder.finish(&mut out).unwrap();
                assert!(decoded(coding, &out) == body, "{coding:?}, {} bytes", body.len());
            }
        }
    }

    #[test]
    fn test_memory_of_zstd_is_within_what_is_reserved() {
        let mut encoder = ContentEncoder::new(Coding::Zstd).unwrap();
        encoder.write(&vec![b'a'; 1 << 20], &mut Vec::new()).unwrap();
        let EncoderState::Zstd(context) = &encoder.state else { unreachable!("it is zstd") };
        assert!(context.sizeof() <= memory_of(Coding::Zstd), "{} bytes", context.sizeof());
    }
}
