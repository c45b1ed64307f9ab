//! The command with text: prompts from anywhere, chats, tokenizers, streamed output.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Output;

use crate::command::talking_model;
use crate::common::{
    Folder, assert_ends, command, document, golden_name, lathe, printed, repository, stderr,
};

/// Runs the command with something on its stdin.
fn lathe_reading(args: &[&str], stdin: &[u8]) -> Output {
    use std::io::Write as _;
    let mut child = command(args)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read it may be over already.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn decode_streams_text_to_stdout_and_figures_to_stderr() {
    let folder = Folder::new();
    let model = talking_model(&folder);
    let base = ["decode", "--model", &model, "-n", "6", "--executor", "cpu", "--ignore-eos"];
    let run = |more: &[&str]| lathe(&[&base[..], more].concat());
    let spoken = run(&["--prompt", "hello"]);
    let report = document(&run(&["--prompt", "hello", "--json"]));
    assert_eq!(report["prompt_text"], "hello");
    let text = report["text"].as_str().unwrap();
    assert_eq!(printed(&spoken), format!("{text}\n"));
    let ids: Vec<String> =
        report["generated"].as_array().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(ids.len(), 6);
    for part in ["time to first token", &format!("tokens {}", ids.join(","))] {
        assert!(stderr(&spoken).contains(part), "{part}");
    }
    // Step by step it is the same text.
    let observed = run(&["--prompt", "hello", "--verify"]);
    assert_eq!(printed(&observed), format!("{text}\n"));
    // Without a tokenizer ids are what there is to say.
    let silent = repository("fuzz/corpus/gguf/model_llama");
    let ids = ["decode", "--model", &silent, "--prompt-tokens", "1,2", "-n", "3"];
    let output = lathe(&[&ids[..], &["--executor", "cpu", "--ignore-eos"]].concat());
    let shown = printed(&output);
    let ids = shown.trim().split(',').filter(|id| id.parse::<u32>().is_ok());
    assert_eq!(ids.count(), 3, "{shown}");
}

#[test]
fn prompts_come_from_arguments_files_and_stdin() {
    let folder = Folder::new();
    let model = talking_model(&folder);
    let file = |name: &str, bytes: &[u8]| folder.write(name, bytes);
    let base = ["decode", "--model", &model, "-n", "1", "--executor", "cpu", "--json"];
    let prompt = |more: &[&str], stdin: &[u8]| {
        let output = lathe_reading(&[&base[..], more].concat(), stdin);
        document(&output)["prompt_tokens"].clone()
    };
    let text = "hello, 日本 \u{1f642}";
    let expected = prompt(&["--prompt", text], b"");
    assert!(expected.as_array().unwrap().len() > 3);
    let path = file("prompt.txt", text.as_bytes());
    assert_eq!(prompt(&["--prompt-file", &path], b""), expected);
    assert_eq!(prompt(&["--prompt-file", "-"], text.as_bytes()), expected);
    assert_eq!(prompt(&["--prompt", "-"], text.as_bytes()), expected);
    let ids = file("ids.txt", expected.to_string().trim_matches(['[', ']']).as_bytes());
    assert_eq!(prompt(&["--prompt-tokens-file", &ids], b""), expected);
    assert_eq!(prompt(&["--prompt-tokens-file", "-"], b"5 6,\n7"), serde_json::json!([5, 6, 7]));

    let invalid = file("invalid.txt", b"abc\xffdef");
    let (empty, words) = (file("empty.txt", b""), file("words.txt", b"1, 2, x"));
    let two = "cannot be used with";
    for (more, stdin, part) in [
        (&["--prompt-file", invalid.as_str()][..], &b""[..], "invalid.txt: byte 3 is not UTF-8"),
        (&["--prompt", "-"], b"\xe6\x97", "stdin: byte 0 is not UTF-8"),
        (&["--prompt-file", &empty], b"", "empty.txt: the prompt is empty"),
        (&["--prompt", ""], b"", "--prompt: the prompt is empty"),
        (&["--prompt", "-"], b"", "stdin: the prompt is empty"),
        (&["--prompt-tokens-file", &words], b"", "words.txt: byte 6: `x` is no token id"),
        (&["--prompt-tokens-file", &empty], b"", "empty.txt: the prompt is empty"),
        (&["--prompt-file", "no-such.txt"], b"", "no-such.txt: "),
        (&["--prompt", "a", "--prompt-tokens", "1"], b"", two),
        (&["--prompt", "a", "--prompt-file", "b"], b"", two),
        (&["--prompt-file", "a", "--prompt-tokens-file", "b"], b"", two),
        (&["--chat", "a", "--prompt", "b"], b"", two),
        (&["--prompt", "a", "--system", "b"], b"", "--chat"),
        (&[], b"", "give a prompt: --prompt TEXT"),
    ] {
        let output = lathe_reading(&[&base[..], more].concat(), stdin);
        assert_ends(&output, 2, part);
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn chats_go_through_a_template() {
    let folder = Folder::new();
    let model = talking_model(&folder);
    let base = ["decode", "--model", &model, "-n", "1", "--executor", "cpu", "--json"];
    let run = |more: &[&str]| lathe(&[&base[..], more].concat());
    let turns = "{{ bos_token }}{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}\
                 {% if add_generation_prompt %}[assistant: {% endif %}";
    let jinja = folder.write("turns.jinja", turns);
    let chat = ["--chat", "hello", "--chat-template", &jinja];
    let report = document(&run(&chat));
    let rendered = report["prompt_text"].as_str().unwrap();
    assert!(rendered.ends_with("[user: hello][assistant: "), "{rendered}");
    assert!(!rendered.starts_with('['), "no BOS in {rendered}");
    // The BOS that the template spells is the only one.
    let ids = report["prompt_tokens"].as_array().unwrap();
    assert_eq!(ids.iter().filter(|id| **id == ids[0]).count(), 1, "{ids:?}");
    let report = document(&run(&[&chat[..], &["--system", "Be brief."]].concat()));
    let rendered = report["prompt_text"].as_str().unwrap();
    assert!(rendered.contains("[system: Be brief.][user: hello]"), "{rendered}");

    // In tokenizer_config.json it is a text among others.
    let config = serde_json::json!({"chat_template": "{{ eos_token }}{{ messages[0].content }}", "eos_token": "!"});
    let config = folder.write("tokenizer_config.json", config.to_string());
    let report = document(&run(&["--chat", "hello", "--chat-template", &config]));
    assert_eq!(report["prompt_text"], "!hello");

    for (name, text, part) in [
        ("open.jinja", "a\n{% if %}", "open.jinja: chat template, line 2: syntax error"),
        (
            "endless.jinja",
            "\n{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "endless.jinja: chat template, line 2: it runs too long",
        ),
        (
            "refuses.jinja",
            "{{ raise_exception('not you') }}",
            "refuses.jinja: chat template, line 1: ",
        ),
        ("include.jinja", "{% include 'x' %}", "include.jinja: chat template, line 1: "),
        ("none.json", "{}", "none.json: `chat_template` is missing"),
    ] {
        let path = folder.write(name, text);
        assert_ends(&run(&["--chat", "hello", "--chat-template", &path]), 5, part);
    }
    assert_ends(&run(&["--chat", "hello"]), 5, "has no chat template");
}

#[test]
fn a_tokenizer_file_takes_the_place_of_the_models() {
    let folder = Folder::new();
    let model = talking_model(&folder);
    let base = ["decode", "--model", &model, "-n", "1", "--executor", "cpu", "--json"];
    let run = |more: &[&str]| lathe(&[&base[..], &["--prompt", "fn main()"], more].concat());
    let tokenizer = golden_name("rusty/tokenizer.json");
    let other = document(&run(&["--tokenizer", &tokenizer]));
    assert_ne!(other["prompt_tokens"], document(&run(&[]))["prompt_tokens"]);
    let text = std::fs::read_to_string(&tokenizer).unwrap();
    let broken = folder.write("tokenizer.json", text.replace("\"NFC\"", "\"Lowcase\""));
    let part = "tokenizer.json: the tokenizers library: ";
    assert_ends(&run(&["--tokenizer", &broken]), 5, part);
}
