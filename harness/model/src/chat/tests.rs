//! Templates of the shapes that models have, and hostile ones.

use std::time::{Duration, UNIX_EPOCH};

use super::*;

/// Turns with roles of their own, a system message that goes into the first user turn, and roles
/// that must alternate: Gemma 3.
const GEMMA: &str = "\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set prefix = '' -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('user and assistant must take turns') }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for part in message['content'] -%}{{ part['text'] | trim }}{%- endfor -%}
    {%- else -%}
        {{ raise_exception('unknown content') }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
";

/// Dates, tools, a system turn that is always there: Llama 3.2.
const LLAMA: &str = "\
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now(\"%d %b %Y\") %}
    {%- else %}
        {%- set date_string = \"26 Jul 2024\" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = \"\" %}
{%- endif %}
{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}
{%- if tools is not none %}
    {{- \"Environment: ipython\\n\" }}
{%- endif %}
{{- \"Today: \" + date_string + \"\\n\\n\" }}
{{- system_message }}
{{- \"<|eot_id|>\" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {{- message.tool_calls[0].function | tojson }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
";

/// A namespace, reversed messages, methods of strings, thoughts cut out of answers: Qwen3.
const QWEN: &str = "\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- \"\\n\" }}{{- tool | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == \"assistant\" %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and thought %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
";

fn conversation(texts: &[(&str, &str)]) -> Vec<Message> {
    texts.iter().map(|(role, content)| Message::new(role, content)).collect()
}

/// 2024-11-22.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_732_233_600)
}

fn try_render(source: &str, texts: &[(&str, &str)]) -> Result<String, ChatError> {
    let tokens = vec![("bos_token".to_owned(), "<bos>".to_owned())];
    ChatTemplate::new(source.to_owned(), tokens)?.render(&conversation(texts), now())
}

#[track_caller]
fn renders(source: &str, texts: &[(&str, &str)], expected: &str) {
    assert_eq!(try_render(source, texts).unwrap(), expected);
}

/// The message has all of `parts`.
#[track_caller]
fn fails(source: &str, parts: &[&str]) {
    let error = try_render(source, &[("user", "hello")]).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    assert!(error.len() < 2000, "{error}");
}

#[test]
fn gemma_puts_the_system_into_the_first_turn() {
    let asked = "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n";
    renders(GEMMA, &[("user", " hi\n")], asked);
    renders(
        GEMMA,
        &[("system", "Be brief."), ("user", "hi")],
        &asked.replace("hi", "Be brief.\n\nhi"),
    );
    renders(
        GEMMA,
        &[("user", "a"), ("assistant", "b"), ("user", "c")],
        "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n\
         <start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model\n",
    );
    let error = try_render(GEMMA, &[("user", "a"), ("user", "b")]).unwrap_err().to_string();
    assert!(error.contains("line 11: "), "{error}");
    assert!(error.contains("raise_exception: user and assistant must take turns"), "{error}");
}

#[test]
fn llama_has_a_date_and_always_a_system() {
    let turn = |role, text| format!("<|start_header_id|>{role}<|end_header_id|>\n\n{text}");
    let system = |text| turn("system", format!("Today: 22 Nov 2024\n\n{text}<|eot_id|>"));
    let user = turn("user", "hi<|eot_id|>".into());
    let answer = turn("assistant", String::new());
    renders(LLAMA, &[("user", "hi ")], &format!("<bos>{}{user}{answer}", system("")));
    let texts = [("system", " Be brief. "), ("user", "hi")];
    renders(LLAMA, &texts, &format!("<bos>{}{user}{answer}", system("Be brief.")));
}

#[test]
fn qwen_cuts_old_thoughts_out() {
    let texts = [
        ("system", "Be brief."),
        ("user", "a"),
        ("assistant", "<think>\nhm\n</think>\n\nb"),
        ("user", "c"),
    ];
    let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na<|im_end|>\n\
        <|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n";
    renders(QWEN, &texts, expected);
    // Thoughts after the last question stay.
    renders(
        QWEN,
        &texts[1..3],
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nb<|im_end|>\n\
         <|im_start|>assistant\n",
    );
}

#[test]
fn templates_find_what_the_transformers_library_gives_them() {
    let text = [("user", "Hello, World")];
    for (source, expected) in [
        // Trimmed blocks, and one new line at the end is left out.
        ("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"),
        ("{{ messages|tojson }}", r#"[{"role": "user", "content": "Hello, World"}]"#),
        (
            "{{ {'b': [1, 1.5, none, true], 'a': '<é>\\n'}|tojson }}",
            r#"{"b": [1, 1.5, null, true], "a": "<é>\n"}"#,
        ),
        ("{{ {'a': [1]}|tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ]\n}"),
        (
            "{{ messages[0].content.upper().replace('L', 'l').split(', ')|join('|') }}",
            "HEllO|WORlD",
        ),
        ("{{ ' x '.strip() + 'xay'.rstrip('y').lstrip('x') + ''.join(['b', 'c']) }}", "xabc"),
        ("{{ messages[0].get('name', 'nobody') ~ messages[0].items()|length }}", "nobody2"),
        (
            "{% for c in 'abcd' %}{% if c == 'b' %}{% continue %}{% elif c == 'd' %}{% break %}{% endif %}{{ c }}{% endfor %}",
            "ac",
        ),
        ("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab') }}", "abab"),
        ("{{ tools is none and documents is none and not enable_thinking is defined }}", "True"),
        ("{{ missing }}{% if missing %}x{% endif %}{{ '<&>' }}", "<&>"),
        ("{{ bos_token }}{{ eos_token }}{{ strftime_now('%Y') }}", "<bos>2024"),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "10",
        ),
        ("{{ messages | map(attribute='role') | list }}", "['user']"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{- 'content' in messages[0] }} {{ messages[-1]['content'][:5] }}", "True Hello"),
    ] {
        let rendered = try_render(source, &text).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(rendered, expected, "{source}");
    }
}

#[test]
fn broken_templates_name_the_line() {
    fails("a\n{% if %}", &["chat template, line 2: syntax error"]);
    fails("a\n\n{{ 'open }}", &["line 3"]);
    fails("{% for x in messages %}", &["line 1", "end"]);
    fails("\n{{ nobody(1) }}", &["line 2", "nobody"]);
    fails("\n\n{{ 'a'|nobody }}", &["line 3", "nobody"]);
    fails("{{ 'a'.nobody() }}", &["line 1", "nobody"]);
    fails("{{ messages.nobody.more }}", &["line 1", "undefined"]);
    fails("{{ messages[0].content + 1 }}", &["line 1"]);
    fails("\n{{ strftime_now('%Q') }}", &["line 2", "%Q is not supported"]);
    fails("\n{{ raise_exception('no') }}", &["line 2", "raise_exception: no"]);
    fails("{% macro f() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ f() }}", &["line 2", "1 / 0"]);
}

#[test]
fn there_is_nothing_to_include() {
    for source in [
        "{% include '/etc/passwd' %}",
        "{% extends 'other' %}",
        "{% import 'other' as other %}",
        "{% from 'other' import thing %}",
        "\n{% block a %}{% endblock %}",
    ] {
        fails(source, &["line ", "unknown statement"]);
    }
}

#[test]
fn hostile_templates_end_with_an_error() {
    let begun = std::time::Instant::now();
    let too_much = "runs too long or makes too much";
    for source in [
        // Time.
        "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
        "{% set x = range(99999)|list %}{% for a in x %}{% set y = x|sort %}{% endfor %}",
        "{% for a in range(99999) %}{{ messages|tojson }}{% endfor %}",
        // Memory.
        "{{ 'a' * 90000000 }}",
        "{{ ('a' * 90000000)|length }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s|replace('a', ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.join(['a', ns.s, ns.s]) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s]|join(ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = (ns.s + ns.s)|list %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s|indent(100000000) %}{% endfor %}",
        "{{ '%1000000000s'|format('a') }}",
    ] {
        fails(source, &["line 1", too_much]);
    }
    fails("{{ 'a' * 10000000000 }}", &["line 1"]);
    fails("{{ range(1000000000000) }}", &["line 1"]);
    fails("{{ '{:1000000000}'.format('a') }}", &["line 1", "str.format"]);
    fails("{{ 'aaa'.replace('a', 'b', 2) }}", &["line 1", "str.replace"]);
    let repeated = "{% set s = 'a' * 1000000 %}{{ [s, s, s, s, s, s, s, s]|tojson }}";
    fails(repeated, &["line 1", "tojson", "4194304"]);
    let loud = "{% set s = 'a' * 1000000 %}{% for i in range(9) %}{{ s }}{% endfor %}";
    fails(loud, &["makes more than 4194304 bytes of text"]);
    // Depth.
    fails("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}\n{{ f(0) }}", &["recursion limit"]);
    fails("{% for x in [[[1]]] recursive %}{{ loop([x]) }}{% endfor %}", &["line 1"]);
    fails(&format!("{}1{}", "{{ ".to_owned() + &"(".repeat(5000), ")".repeat(5000)), &["line 1"]);
    renders(&format!("{{{{ {}1 }}}}", "not ".repeat(50_000)), &[], "True");
    fails(&"{% if true %}".repeat(5000), &["line 1"]);
    fails(&"a".repeat(2 << 20), &["2097152 bytes", "at most 1048576"]);
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    // Deep, but it ends: nothing of it is shown.
    assert!(try_render(nested, &[("user", "a")]).is_ok_and(|text| text.is_empty()));
    for shown in
        ["{{ ns.x }}", "{{ ns.x|tojson }}", "{{ ns.x == ns.x }}", "{{ [ns.x, ns.x]|unique }}"]
    {
        // Whatever comes out, nothing crashes.
        let _ = try_render(&format!("{nested}{shown}"), &[("user", "a")]);
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn long_conversations_are_no_attack() {
    let one =
        [("user", "word ".repeat(1000)), ("assistant", "<think>\nx\n</think>\n\nword".repeat(20))];
    let many: Vec<_> = (0..200).flat_map(|_| one.iter()).map(|(r, t)| (*r, t.as_str())).collect();
    for template in [GEMMA, LLAMA, QWEN] {
        let rendered = try_render(template, &many).unwrap();
        assert!(rendered.matches("word word word").count() > 200 * 300);
    }
}

#[test]
fn configurations_hold_templates_and_tokens() {
    let parse = |text: &str| parse_config(text.as_bytes()).map_err(|e| e.to_string());
    let (template, tokens) = parse(
        r#"{"chat_template": "x", "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
            "unk_token": null, "other": 1}"#,
    )
    .unwrap();
    assert_eq!(template.as_deref(), Some("x"));
    let expected = [("bos_token", "<s>"), ("eos_token", "</s>")];
    assert_eq!(tokens, expected.map(|(name, token)| (name.to_owned(), token.to_owned())));
    let named = r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
    assert_eq!(parse(named).unwrap().0.as_deref(), Some("d"));
    assert_eq!(parse("{}").unwrap(), (None, vec![]));
    for (text, part) in [
        ("{", "is no JSON: EOF"),
        (r#"{"chat_template": 1}"#, "`chat_template` is neither"),
        (r#"{"chat_template": [{"name": "rag", "template": "t"}]}"#, "none is called `default`"),
        (r#"{"bos_token": 1}"#, "`bos_token` is no token"),
        (r#"{"bos_token": {}}"#, "`bos_token` has no content"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn folders_have_a_file_or_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let render = || {
        let template = ChatTemplate::from_folder(folder.path()).map_err(|e| e.to_string())?;
        let rendered = template.map(|t| t.render(&conversation(&[("user", "hi")]), now()));
        rendered.transpose().map_err(|e| e.to_string())
    };
    assert_eq!(render(), Ok(None));
    write("tokenizer_config.json", r#"{"bos_token": "<s>"}"#);
    assert_eq!(render(), Ok(None));
    write(
        "tokenizer_config.json",
        r#"{"bos_token": "<s>", "chat_template": "{{ bos_token }}key"}"#,
    );
    assert_eq!(render(), Ok(Some("<s>key".into())));
    write("chat_template.jinja", "{{ bos_token }}file {{ messages[0].content }}");
    assert_eq!(render(), Ok(Some("<s>file hi".into())));
    write("chat_template.jinja", "a\n{% if %}");
    let error = render().unwrap_err();
    assert!(error.contains("chat_template.jinja: chat template, line 2: "), "{error}");
    std::fs::write(folder.path().join("chat_template.jinja"), b"ab\xff").unwrap();
    assert!(render().unwrap_err().contains("chat_template.jinja: chat template: byte 2"));
}
