//! Examples that end the `--help` of each command.

use clap::Command;

/// Command lines without `lathe`, each with its purpose, in the order of `lathe --help`.
/// `compare` has examples of its own.
pub(crate) const EXAMPLES: &[(&str, &str)] = &[
    ("doctor", "what adapters there are"),
    ("doctor --measure", "and what the chosen one does at most"),
    ("list", "kernels, variants, and whether this adapter has them"),
    ("list --json", "with parameters and reasons"),
    ("validate gemv", "every variant of a kernel"),
    ("validate mine.wgsl --set WG=64", "a file of yours, a value for an override"),
    ("validate mine.wgsl --limits all", "which adapters it fits, without any of them"),
    ("validate mine.wgsl --browser --spirv-val", "what Chrome's and Vulkan's compilers say"),
    ("show gemv/vec2", "the linked text"),
    ("show glu/vec4 --as msl", "what Metal would compile"),
    ("map mine.wgsl gemv", "a skeleton beside it, mine.toml"),
    ("map mine.wgsl gemv/naive", "in the place of a variant"),
    ("check", "every variant of every kernel"),
    ("check gemv/naive --wgsl mine.wgsl --watch", "your file, whenever it is saved"),
    ("sanitize gemv", "races, unwritten memory and more, at five subgroup sizes"),
    ("sanitize gemv/naive --wgsl mine.wgsl --shape ROWS=5,K=64", "in your file"),
    ("bench gemv --shape ROWS=1152,K=6912", "all variants at one shape"),
    ("bench gemv/vec2 glu --first --save run.json", "several, and keep the samples"),
    ("bench gemv/naive --wgsl mine.wgsl", "your file in a variant's place"),
    ("suite model.gguf", "the quick tier"),
    ("suite a.gguf b.gguf --tier standard -o run.json", "two models side by side"),
    ("ab gemv --a naive --b vec2", "two variants"),
    ("ab gemv --a vec2 --b mine.wgsl --processes 5", "a file of yours, in fresh processes"),
    ("ab decode --model model.gguf --a gemv=naive --b gemv=vec2", "in whole steps"),
    ("export-web -o web-out", "all kernels"),
    ("export-web all model.gguf --prompt Hello -o web-out --single", "a page that opens from disk"),
    ("report run.json -o report.html", "one record"),
    ("report base.json new.json -o both.html", "two, side by side"),
    ("merge shards/*.json -o records", "a record an adapter and build"),
    ("merge old.json new.json -o tuned.json --prefer newest", "where they contradict"),
    ("tune gemv --shape ROWS=1152,K=6912", "one kernel and shape"),
    ("tune --model model.gguf", "all that decoding this file needs"),
    ("tune --show", "what is stored"),
    ("synth --arch gemma3-mini -o mini.gguf", "a small one"),
    ("synth --arch qwen3-mini --quant q4_0 --embed-quant q8_0 -o q.gguf", "two types"),
    ("quantize model.gguf -o small.gguf --type q4_k", "a GGUF"),
    ("quantize folder -o model.gguf --type q8_0", "a folder with safetensors"),
    ("inspect model.gguf", "what it holds"),
    ("inspect model.gguf --context 8192", "and whether that fits the device"),
    ("decode model.gguf --prompt-tokens 2,5,7 -n 32", "from token ids"),
    ("decode model.gguf --chat hello -n 64", "through its chat template"),
    ("decode model.gguf --prompt-tokens 2 -n 64 --profile run.json", "operation by operation"),
    ("chat model.gguf --system Briefly.", "a line of stdin, an answer, the next line"),
    ("chat model.gguf --messages so-far.json --set enable_thinking=false", "go on from a file"),
    ("tokenize --model model.gguf hello", "ids and pieces"),
    ("tokenize --model model.gguf --decode 2,5,7", "the text of ids"),
    ("diff model.gguf --prompt-tokens 2,5,7", "a prompt"),
    ("diff model.gguf --prompt-tokens 2 --hint gemv=mine.wgsl", "with a file of yours"),
    ("perplexity model.gguf --text text.txt", "in windows of 512"),
    ("perplexity small.gguf --text text.txt --reference model.gguf", "against another"),
];

/// The examples of a command as the end of its help; `None` where the table has none.
fn examples(command: &str) -> Option<String> {
    let of_command = |(line, _): &&(&str, &str)| line.split(' ').next() == Some(command);
    let examples: Vec<_> = EXAMPLES.iter().filter(of_command).collect();
    let width = examples.iter().map(|(line, _)| line.len()).max()?;
    let lines = examples.iter().map(|(line, purpose)| match width + purpose.len() < 70 {
        true => format!("\n  lathe {line:<width$}  {purpose}"),
        false => format!("\n  lathe {line}\n      {purpose}"),
    });
    Some(std::iter::once("Examples:".to_owned()).chain(lines).collect())
}

/// The command line with the examples.
pub(crate) fn with_examples(command: Command) -> Command {
    command.mut_subcommands(|sub| match (examples(sub.get_name()), sub.get_after_help()) {
        (None, _) => sub,
        (Some(text), None) => sub.after_help(text),
        (Some(text), Some(own)) => {
            let text = format!("{own}\n\n{text}");
            sub.after_help(text)
        }
    })
}
