//! Tokens from a checkpoint. Give a GGUF file and a prompt, or nothing: then the checkpoint is a
//! small one of random weights, made here, and so is what it says.

use std::error::Error;

use lathe_harness::decode::{DecodeOptions, Model, Sampling};
use lathe_harness::gpu::{Checks, Gpu};
use lathe_harness::model::synth::{SynthArch, SynthSpec, write_synth};
use lathe_kernels::Format;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = tempfile::tempdir()?;
    let path = match arguments.next() {
        Some(path) => path.into(),
        None => {
            let path = folder.path().join("small.gguf");
            let (arch, quant) = (SynthArch::LlamaMini, Format::Q4K);
            let spec = SynthSpec { arch, quant, embed_quant: None, seed: 1 };
            write_synth(&spec, &path, &mut |_, _| {})?;
            path
        }
    };
    let prompt = arguments.next().unwrap_or_else(|| "Once upon a time".into());

    // Greedily: with 32 positions, because that is all it is asked for.
    let gpu = Gpu::open(None, Checks::default())?.into();
    let model = Model::open(&path)?;
    let short = DecodeOptions { context: 32, ..DecodeOptions::default() };
    let mut session = model.session(&gpu, short.clone())?;
    let run = session.generate(&model.encode(&prompt)?, 8, |token| println!("token {token}"))?;
    println!("{}", model.text(&run.generated).unwrap_or_default());

    // Drawn at random, from the same seed the same tokens.
    let sampling = Sampling {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        repeat_penalty: 1.0,
        repeat_last_n: 0,
    };
    let mut session = model.session(&gpu, DecodeOptions { sampling: Some(sampling), ..short })?;
    let run = session.generate(&[1, 2, 3], 8, |_| {})?;
    println!("{:?}", run.generated);
    Ok(())
}
