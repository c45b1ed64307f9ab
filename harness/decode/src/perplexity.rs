//! Quality of a model's predictions of a text, in nats: the negative log-likelihood of each token
//! given those before it and, against a reference model, the divergence of the two distributions.
//!
//! A text is cut into windows of equal length. Each is a new sequence that begins with one start
//! token, and all of its tokens are scored: the first is predicted from the start token alone.
//!
//! Sources: Jelinek, Mercer, Bahl and Baker, *Perplexity: a measure of the difficulty of speech
//! recognition tasks*, JASA 62 (1977) S63; Kullback and Leibler, *On information and sufficiency*,
//! Ann. Math. Statist. 22 (1951) 79.

use super::decoder::Decoder;
use super::model::Model;
use lathe_device::error::{Error, Result};
use lathe_device::plan::recording::Part;
use lathe_model::tokenizer::token_type::UNUSED;
use lathe_record::stats::{Mean, mean};

/// A text as tokens, with its division into windows.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Token that every window begins with; it is not scored.
    start: u32,
    /// The text's tokens that are scored.
    tokens: &'a [u32],
    /// Tokens of a window.
    window: usize,
}

impl<'a> Text<'a> {
    /// The whole windows of `tokens`; a rest that does not fill another window is left out. `limit`
    /// caps the number of tokens, and the last window may then end early.
    ///
    /// # Errors
    /// A window or a limit of 0, or fewer tokens than one window has.
    pub fn new(start: u32, tokens: &'a [u32], window: usize, limit: Option<usize>) -> Result<Self> {
        if window == 0 || limit == Some(0) {
            return Err(Error::Usage("a window or a limit of 0 tokens scores nothing".into()));
        }
        if tokens.len() < window && limit.is_none_or(|limit| tokens.len() < limit) {
            return Err(Error::Usage(format!(
                "the text's {} tokens do not fill a window of {window}",
                tokens.len()
            )));
        }
        let whole = tokens.len() - tokens.len() % window;
        let scored = match limit {
            // Fewer than a window: their scores are those that the first window would begin with.
            Some(limit) if limit < window => limit,
            Some(limit) => limit.min(whole),
            None => whole,
        };
        Ok(Self { start, tokens: &tokens[..scored], window })
    }

    /// Tokens that are scored.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens of each window, in order; none is empty.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = &'a [u32]> + use<'a> {
        self.tokens.chunks(self.window)
    }
}

/// The token that windows begin with: the BOS that a model's file names, else its EOS.
///
/// # Errors
/// The file names neither.
pub fn start_token(model: &Model) -> Result<u32> {
    model.config.bos.or(model.config.eos).ok_or_else(|| Error::Undecodable {
        path: model.file.path.clone(),
        reason:
            "names neither tokenizer.ggml.bos_token_id nor tokenizer.ggml.eos_token_id, one of \
                 which windows of text begin with"
                .into(),
    })
}

/// Refuses models whose token ids mean different tokens, since distributions over them cannot be
/// compared.
/// Tokens that both files call unused may be spelled as they like.
///
/// # Errors
/// Vocabularies of different sizes or with different spellings, or one that cannot be read.
pub fn same_vocabulary(model: &Model, reference: &Model) -> Result<()> {
    let differ = |what: String| {
        let [a, b] = [model, reference].map(|m| m.file.path.display());
        Err(Error::Usage(format!("{a} and {b} have different vocabularies: {what}")))
    };
    let [ours, theirs] = [model.config.vocab, reference.config.vocab];
    if ours != theirs {
        return differ(format!("{ours} and {theirs} tokens"));
    }
    // Without a tokenizer in both files the sizes are all there is.
    let (Some(ours), Some(theirs)) = (model.file.vocabulary()?, reference.file.vocabulary()?)
    else {
        return Ok(());
    };
    let unused = |id: usize| {
        [&ours, &theirs].iter().all(|v| v.token_types.get(id).is_some_and(|kind| *kind == UNUSED))
    };
    let pairs = ours.tokens.iter().zip(&theirs.tokens).enumerate();
    match pairs.into_iter().find(|(id, (a, b))| a != b && !unused(*id)) {
        Some((id, (a, b))) => differ(format!("token {id} is {a:?} and {b:?}")),
        None => Ok(()),
    }
}

/// Logits in memory at a time: positions of a window. 64 rows of a vocabulary of 262144 are 64 MiB.
const ROWS: usize = 64;

impl Decoder<'_> {
    /// A new sequence in which `tokens` are predicted: all but the last of them are fed, after
    /// `start`.
    fn begin_window(&mut self, start: u32, tokens: &[u32]) -> Result<()> {
        // The last of a window is never fed, and has a logit.
        self.graph.knows(tokens, "")?;
        let fed: Vec<u32> = [start].iter().chain(tokens).take(tokens.len()).copied().collect();
        self.reset(0)?;
        self.give(0, &fed)
    }

    /// Logits after each of the next `count` tokens: (count, vocab). Token by token, since a chunk
    /// of a prompt leaves those of its last token only.
    fn logits_of(&mut self, count: usize) -> Result<Vec<f32>> {
        let mut rows = Vec::with_capacity(count * self.graph.vocab);
        for _ in 0..count {
            self.executor.run(&[Part::Steps(1)])?;
            rows.extend_from_slice(&self.logits()?[..self.graph.vocab]);
        }
        Ok(rows)
    }
}

/// A token's score by a reference, and how the model's distribution compares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Negative log-likelihood by the reference, nats.
    pub reference_nll: f64,
    /// Kullback-Leibler divergence of the model's distribution from the reference's, nats.
    pub kl: f64,
    /// Both find the same token likeliest.
    pub top1: bool,
}

/// Negative log-likelihood of each of a window's tokens, in nats, and of each its comparison with a
/// reference, where there is one. `on_tokens` hears of those that are done, a few at a time.
///
/// # Errors
/// A token beyond the vocabulary, more tokens than a context has room for, logits that are no
/// numbers, vocabularies of different sizes, or the device is lost.
pub fn window(
    model: &mut Decoder<'_>,
    mut reference: Option<&mut Decoder<'_>>,
    start: u32,
    tokens: &[u32],
    on_tokens: &mut dyn FnMut(usize),
) -> Result<(Vec<f64>, Vec<Compared>)> {
    let vocab = model.graph.vocab;
    if let Some(other) = reference.as_ref().map(|r| r.graph.vocab).filter(|v| *v != vocab) {
        return Err(Error::Usage(format!(
            "the model has a vocabulary of {vocab} tokens, the reference one of {other}"
        )));
    }
    model.begin_window(start, tokens)?;
    if let Some(reference) = &mut reference {
        reference.begin_window(start, tokens)?;
    }
    let (mut all, mut compared) = (Vec::with_capacity(tokens.len()), Vec::new());
    for piece in tokens.chunks(ROWS) {
        let ours = model.logits_of(piece.len())?;
        let theirs = reference.as_mut().map(|r| r.logits_of(piece.len())).transpose()?;
        let mut theirs = theirs.iter().flat_map(|logits| logits.chunks_exact(vocab));
        for (row, token) in ours.chunks_exact(vocab).zip(piece) {
            let (ours, position) = (Distribution::of(row), all.len());
            all.push(finite(ours.nll(*token), "the negative log-likelihood", position)?);
            let Some(theirs) = theirs.next().map(Distribution::of) else { continue };
            compared.push(Compared {
                reference_nll: finite(
                    theirs.nll(*token),
                    "the reference's negative log-likelihood",
                    position,
                )?,
                kl: finite(theirs.divergence(&ours), "the divergence", position)?,
                top1: ours.likeliest() == theirs.likeliest(),
            });
        }
        on_tokens(piece.len());
    }
    Ok((all, compared))
}

fn finite(value: f64, what: &str, position: usize) -> Result<f64> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(Error::CheckFailed(format!("position {position} of a window: {what} is {value}")))
}

/// A row of logits as probabilities: pᵢ = exp(lᵢ − ln Σⱼ exp(lⱼ)), in f64.
#[derive(Clone, Copy, Debug)]
struct Distribution<'a> {
    logits: &'a [f32],
    largest: f64,
    /// ln Σⱼ exp(lⱼ − largest): apart, since the sum of both loses digits of it.
    log_sum: f64,
}

impl<'a> Distribution<'a> {
    fn of(logits: &'a [f32]) -> Self {
        let largest = logits.iter().fold(f32::NEG_INFINITY, |m, l| m.max(*l));
        let largest = f64::from(largest);
        // A NaN is no largest, but makes the sum one; so does an infinity.
        let sum: f64 = logits.iter().map(|l| (f64::from(*l) - largest).exp()).sum();
        Self { logits, largest, log_sum: sum.ln() }
    }

    fn log_probability(&self, token: usize) -> f64 {
        f64::from(self.logits[token]) - self.largest - self.log_sum
    }

    fn nll(&self, token: u32) -> f64 {
        -self.log_probability(token as usize)
    }

    /// Σᵢ pᵢ (ln pᵢ − ln qᵢ) with p these probabilities and q the `other` ones: the loss of using q
    /// where p is true.
    fn divergence(&self, other: &Self) -> f64 {
        let term = |token: usize| {
            let log = self.log_probability(token);
            let p = log.exp();
            // A probability of 0 adds nothing, whatever the other one is.
            if p == 0.0 { 0.0 } else { p * (log - other.log_probability(token)) }
        };
        (0..self.logits.len()).map(term).sum()
    }

    /// The token of the largest logit, the first of equals.
    fn likeliest(&self) -> usize {
        let mut best = 0;
        for (token, logit) in self.logits.iter().enumerate() {
            if *logit > self.logits[best] {
                best = token;
            }
        }
        best
    }
}

/// Summary of a text's scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Negative log-likelihood a token, nats.
    pub nll: Mean,
    /// Against a reference.
    pub against: Option<Against>,
}

/// Comparison of a text's scores with those of a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Against {
    /// The reference's negative log-likelihood a token, nats.
    pub nll: Mean,
    /// The model's excess over the reference, token by token. Its error is far below those of the
    /// two means, since a hard token is hard for both.
    pub more: Mean,
    /// Divergence a token, nats.
    pub kl: Mean,
    /// Fraction of positions at which both find the same token likeliest.
    pub top1: f64,
}

impl Quality {
    /// e to the mean negative log-likelihood: the number of equally likely tokens that the model is
    /// left to choose among.
    pub fn perplexity(&self) -> f64 {
        self.nll.mean.exp()
    }
}

/// Scores a text and compares it with a reference, if there is one. `on_tokens` hears of scored
/// tokens, a few at a time.
///
/// # Errors
/// Errors of [`window`].
pub fn measure(
    model: &mut Decoder<'_>,
    mut reference: Option<&mut Decoder<'_>>,
    text: &Text<'_>,
    on_tokens: &mut dyn FnMut(usize),
) -> Result<Quality> {
    // Before the first window takes its time.
    model.graph.knows(text.tokens, "")?;
    let (mut all, mut compared) = (Vec::with_capacity(text.tokens()), Vec::new());
    for (index, tokens) in text.windows().enumerate() {
        let scores = window(model, reference.as_deref_mut(), text.start, tokens, on_tokens);
        let (nll, beside) = scores.map_err(|e| in_window(e, index))?;
        all.extend(nll);
        compared.extend(beside);
    }
    let of = |value: &dyn Fn(&Compared) -> f64| compared.iter().map(value).collect::<Vec<_>>();
    let theirs = of(&|c| c.reference_nll);
    let more: Vec<f64> = all.iter().zip(&theirs).map(|(ours, theirs)| ours - theirs).collect();
    let against = reference.map(|_| Against {
        nll: mean(&theirs),
        more: mean(&more),
        kl: mean(&of(&|c| c.kl)),
        top1: mean(&of(&|c| f64::from(u8::from(c.top1)))).mean,
    });
    Ok(Quality { nll: mean(&all), against })
}

/// Adds the window to a failed check's message.
fn in_window(error: Error, index: usize) -> Error {
    match error {
        Error::CheckFailed(what) => Error::CheckFailed(format!("window {index}: {what}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        // Logits are f32: half a unit in the last place of ln 2.
        assert!((a - b).abs() < 1e-6 * (1.0 + b.abs()), "{a} is not {b}");
    }

    #[test]
    fn uniform_logits_give_the_logarithm_of_the_vocabulary() {
        for (vocab, logit) in [(1, 0.0), (7, -3.5), (4096, 88.0), (262_144, f32::MAX)] {
            let row = vec![logit; vocab];
            let distribution = Distribution::of(&row);
            close(distribution.nll(0), (vocab as f64).ln());
            close(distribution.nll(vocab as u32 - 1), (vocab as f64).ln());
            assert_eq!(distribution.likeliest(), 0);
        }
    }

    /// p = (1/2, 1/4, 1/4) and q = (1/4, 1/4, 1/2), as logits of any level:
    /// KL(p‖q) = 1/2 ln 2 + 0 − 1/4 ln 2.
    #[test]
    fn a_known_pair_has_its_divergence() {
        let p = [2f32.ln() + 5.0, 5.0, 5.0];
        let q = [-80.0, -80.0, 2f32.ln() - 80.0];
        let (p, q) = (Distribution::of(&p), Distribution::of(&q));
        close(p.divergence(&q), 2f64.ln() / 4.0);
        assert_eq!(p.divergence(&p), 0.0);
        close(p.nll(0), 2f64.ln());
        close(q.nll(0), 4f64.ln());
        assert_eq!((p.likeliest(), q.likeliest()), (0, 2));
        // It is no distance: p = (1/2, 1/2), q = (1/4, 3/4).
        let (p, q) = ([0.0, 0.0], [0.0, 3f32.ln()]);
        let (p, q) = (Distribution::of(&p), Distribution::of(&q));
        close(p.divergence(&q), 0.5 * 2f64.ln() + 0.5 * (2.0 / 3f64).ln());
        close(q.divergence(&p), 0.25 * 0.5f64.ln() + 0.75 * 1.5f64.ln());
    }

    #[test]
    fn what_one_finds_impossible_counts_where_the_other_does_not() {
        let (all, some) = ([0.0, 0.0], [0.0, f32::NEG_INFINITY]);
        let (all, some) = (Distribution::of(&all), Distribution::of(&some));
        close(some.divergence(&all), 2f64.ln());
        assert_eq!(all.divergence(&some), f64::INFINITY);
        assert!(finite(all.divergence(&some), "the divergence", 3).is_err());
    }

    #[test]
    fn logits_that_are_no_numbers_are_an_error() {
        for wrong in [f32::NAN, f32::INFINITY] {
            for at in 0..3 {
                let mut row = [0.5, 1.0, -2.0];
                row[at] = wrong;
                for token in 0..3 {
                    let nll = Distribution::of(&row).nll(token);
                    let error = finite(nll, "the negative log-likelihood", 7).unwrap_err();
                    assert_eq!(error.exit_code(), 1);
                    assert!(error.to_string().contains("position 7"), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_text_is_cut_into_whole_windows() {
        let tokens: Vec<u32> = (0..11).collect();
        let cut = |window, limit| -> Vec<Vec<u32>> {
            let text = Text::new(99, &tokens, window, limit).unwrap();
            text.windows().map(<[u32]>::to_vec).collect()
        };
        let windows = |lengths: &[usize]| -> Vec<Vec<u32>> {
            let mut from = 0;
            let next = |length: &usize| {
                from += length;
                (from as u32 - *length as u32..from as u32).collect()
            };
            lengths.iter().map(next).collect()
        };
        assert_eq!(cut(4, None), windows(&[4, 4]));
        assert_eq!(cut(11, None), windows(&[11]));
        assert_eq!(cut(1, None).len(), 11);
        assert_eq!(cut(4, Some(100)), windows(&[4, 4]));
        assert_eq!(cut(4, Some(6)), windows(&[4, 2]));
        assert_eq!(cut(4, Some(3)), windows(&[3]));
        // A window that begins but need not end.
        assert_eq!(cut(512, Some(11)), windows(&[11]));
        for (window, limit) in
            [(12, None), (12, Some(12)), (512, Some(100)), (0, None), (4, Some(0))]
        {
            let error = Text::new(99, &tokens, window, limit).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{window} {limit:?}");
        }
        assert!(Text::new(99, &[], 1, None).is_err());
    }
}
