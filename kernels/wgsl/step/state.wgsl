// Words of the step state (layout::StateWord): one counter of tokens seen for every cache. Several sequences
// have a row of them each.
const STATE_WORDS: u32 = 4u;
const POSITION: u32 = 0u;
const PROMPT_LEN: u32 = 1u;
const CHOICE: u32 = 2u;
const SEED: u32 = 3u;
