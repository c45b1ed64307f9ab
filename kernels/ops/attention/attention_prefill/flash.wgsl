// attention_prefill/flash: blocks of query rows against tiles of 64 keys, sixteen by sixteen invocations.
//
// Idea: FlashAttention (Dao et al., arXiv 2205.14135) as two matrix products in registers. A row is a
// query head of a token; a block has 16 * ROWS_EACH rows of one KV head, so the heads of a group share
// K and V. An invocation has ROWS_EACH rows and four keys of the scores, then the same rows and every
// sixteenth four of the values: each vector it reads from workgroup memory serves ROWS_EACH or
// four multiply-adds a component. The weights between the two products go through workgroup memory,
// with an online softmax (arXiv 1805.02867). Blocks with most keys start first.
// import: attention/parts/prefill_flash, attention/parts/prefill_whole
