//! The Huffman code of literals (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of equal length are consecutive numbers in the order of their symbols, and a longer
//! code continues where the shorter ones end. So the lengths determine the codes. The compiler builds two tables from
//! them: the codes, and a state machine that decodes four bits at a time.

/// The lengths of the codes of all bytes, in bits.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The length of the code of EOS, a symbol that no string may contain.
const END_LENGTH: u8 = 30;

/// The codes of all bytes, in the low bits.
static CODES: [u32; 256] = codes();

/// The state machine. A state is an inner node of the code tree; each row has the transition for each value of four
/// bits.
static STEPS: [[Move; 16]; NODES] = steps();

/// The number of inner nodes of a full binary tree with 257 leaves.
const NODES: usize = 256;

/// A transition by four bits.
#[derive(Clone, Copy)]
struct Move {
    next: u8,
    effect: Effect,
    byte: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// No code ends in these bits.
    Nothing,
    /// One code ends. Two cannot end, because the shortest code has five bits.
    Byte,
    /// The code of EOS, which is forbidden.
    Invalid,
}

const fn codes() -> [u32; 256] {
    let mut codes = [0; 256];
    let (mut code, mut length) = (0u32, 1u8);
    while length <= END_LENGTH {
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
}

/// The first value that is a leaf, in a node's list of children. The symbol of a leaf is added to it; 0 means not set
/// yet.
const LEAF: u16 = 256;

const fn tree() -> [[u16; 2]; NODES] {
    let codes = codes();
    let mut tree = [[0u16; 2]; NODES];
    let mut nodes = 1u16;
    let mut symbol = 0u16;
    while symbol <= 256 {
        let (code, length) = if symbol == 256 {
            ((1 << END_LENGTH) - 1, END_LENGTH)
        } else {
            (codes[symbol as usize], LENGTHS[symbol as usize])
        };
        let (mut node, mut bit) = (0usize, length);
        while bit > 0 {
            bit -= 1;
            let side = (code >> bit & 1) as usize;
            if bit == 0 {
                tree[node][side] = LEAF + symbol;
            } else {
                if tree[node][side] == 0 {
                    tree[node][side] = nodes;
                    nodes += 1;
                }
                node = tree[node][side] as usize;
            }
        }
        symbol += 1;
    }
    tree
}

const fn steps() -> [[Move; 16]; NODES] {
    let tree = tree();
    let mut steps = [[Move { next: 0, effect: Effect::Nothing, byte: 0 }; 16]; NODES];
    let mut start = 0;
    while start < NODES {
        let mut bits = 0;
        while bits < 16 {
            steps[start][bits] = step(&tree, start, bits);
            bits += 1;
        }
        start += 1;
    }
    steps
}

#[allow(clippy::cast_possible_truncation)] // Nodes and symbols are below 256.
const fn step(tree: &[[u16; 2]; NODES], start: usize, bits: usize) -> Move {
    let (mut node, mut bit) = (start, 4);
    let mut found = Move { next: 0, effect: Effect::Nothing, byte: 0 };
    while bit > 0 {
        bit -= 1;
        let child = tree[node][bits >> bit & 1];
        if child == LEAF + 256 {
            return Move { next: 0, effect: Effect::Invalid, byte: 0 };
        }
        if child >= LEAF {
            found = Move { next: 0, effect: Effect::Byte, byte: (child - LEAF) as u8 };
            node = 0;
        } else {
            node = child as usize;
        }
    }
    Move { next: node as u8, ..found }
}

/// Decodes a string and appends it to `out`. Returns false if the string is malformed: it contains EOS, or its padding
/// is longer than 7 bits or is not a prefix of EOS (RFC 7541 section 5.2).
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> bool {
    // The shortest code has five bits.
    out.reserve(input.len() * 8 / 5);
    let mut state = 0;
    for &byte in input {
        for bits in [byte >> 4, byte & 15] {
            let step = STEPS[usize::from(state)][usize::from(bits)];
            match step.effect {
                Effect::Nothing => {}
                Effect::Byte => out.push(step.byte),
                Effect::Invalid => return false,
            }
            state = step.next;
        }
    }
    is_padding(state)
}

/// Returns true if the path from the root to this state is at most 7 one bits.
fn is_padding(state: u8) -> bool {
    PADDING[usize::from(state)]
}

static PADDING: [bool; NODES] = padding();

const fn padding() -> [bool; NODES] {
    let tree = tree();
    let mut is_padding = [false; NODES];
    let (mut node, mut ones) = (0usize, 0);
    while ones <= 7 {
        is_padding[node] = true;
        node = tree[node][1] as usize;
        ones += 1;
    }
    is_padding
}

/// Returns the length of the encoded string in bytes.
pub(super) fn encoded_length(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Encodes a string and appends it to `out`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    // The lowest `count` bits of `pending` have not been written. Between two bytes of `text`, `count` is below 8.
    let (mut pending, mut count) = (0u64, 0);
    for &byte in text {
        pending = pending << LENGTHS[usize::from(byte)] | u64::from(CODES[usize::from(byte)]);
        count += u32::from(LENGTHS[usize::from(byte)]);
        while count >= 8 {
            count -= 8;
            out.push((pending >> count).to_le_bytes()[0]);
        }
    }
    if count > 0 {
        let padding = 8 - count;
        out.push((pending << padding | ((1 << padding) - 1)).to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7541 appendix C.4.1.
    #[test]
    fn example_of_the_rfc_is_encoded_and_decoded() {
        let encoded = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        let mut out = Vec::new();
        encode(b"www.example.com", &mut out);
        assert_eq!(out, encoded);
        out.clear();
        assert!(decode(&encoded, &mut out));
        assert_eq!(out, b"www.example.com");
    }

    /// Some codes of each length in RFC 7541 appendix B.
    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, code, length) in
            [(b'0', 0, 5), (b'a', 0x3, 5), (b' ', 0x14, 6), (0, 0x1ff8, 13), (1, 0x7f_ffd8, 23), (249, 0xfff_fffe, 28)]
        {
            assert_eq!((CODES[usize::from(symbol)], LENGTHS[usize::from(symbol)]), (code, length), "{symbol}");
        }
        assert_eq!((CODES[10], LENGTHS[10], CODES[22]), (0x3fff_fffc, 30, 0x3fff_fffe));
    }

    #[test]
    fn all_bytes_return() {
        let all: Vec<u8> = (0..=255).collect();
        for text in all.windows(3).chain([&all[..], b""]) {
            let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
            encode(text, &mut encoded);
            assert_eq!(encoded.len(), encoded_length(text));
            assert!(decode(&encoded, &mut decoded));
            assert_eq!(decoded, text);
        }
    }

    #[test]
    fn malformed_strings_are_refused() {
        let is_valid = |bytes: &[u8]| decode(bytes, &mut Vec::new());
        // EOS alone, and after a letter.
        assert!(!is_valid(&[0xff, 0xff, 0xff, 0xff]));
        assert!(!is_valid(&[0x1f, 0xff, 0xff, 0xff, 0xff]));
        // Padding of 8 bits, and of zeros.
        assert!(!is_valid(&[0xff]));
        assert!(!is_valid(&[0b0001_1111, 0xff]));
        assert!(!is_valid(&[0b0001_1000]));
        assert!(is_valid(&[0b0001_1111]));
    }
}
