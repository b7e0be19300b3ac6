//! The types of tensors in GGUF files: how many elements a block has, and how many bytes.

/// A type of tensors, by its number in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ElementKind(u32);

/// Number, name, elements per block and bytes per block; those of `ggml.h` and `ggml-common.h`.
#[rustfmt::skip]
const KINDS: [(u32, &str, u64, u64); 35] = [
    (0, "F32", 1, 4), (1, "F16", 1, 2), (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 36), (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176), (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66), (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18), (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82), (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1), (25, "I16", 1, 2), (26, "I32", 1, 4), (27, "I64", 1, 8), (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56), (30, "BF16", 1, 2), (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66), (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36), (41, "Q1_0", 128, 18), (42, "Q2_0", 64, 18),
];

impl ElementKind {
    pub const F32: ElementKind = ElementKind(0);
    pub const F16: ElementKind = ElementKind(1);
    pub const BF16: ElementKind = ElementKind(30);

    /// The type with this number in files. Returns `None` if there is none.
    pub fn of(number: u32) -> Option<Self> {
        let is_known = KINDS.iter().any(|(own, ..)| *own == number);
        is_known.then_some(ElementKind(number))
    }

    fn row(self) -> (&'static str, u64, u64) {
        let found = KINDS.iter().find(|(number, ..)| *number == self.0);
        found.map_or(("", 1, 1), |(_, name, elements, bytes)| (name, *elements, *bytes))
    }

    /// The name, as ggml has it: `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The elements of a block.
    pub fn block(self) -> u64 {
        self.row().1
    }

    /// The bytes of this many elements, which are whole blocks. Returns `None` if a `u64` cannot hold them.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let (_, block, bytes) = self.row();
        (elements / block).checked_mul(bytes)
    }

    /// Whether each element is a number of its own, and not a part of a quantised block.
    pub fn is_plain(self) -> bool {
        self.block() == 1
    }
}
