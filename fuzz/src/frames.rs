//! The decoder of a control connection.

use farreach_proto::wire::{self, Decoder, Frame, PREAMBLE_LEN};

/// The first byte chooses how the rest is cut into chunks.
pub(crate) fn run(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    preamble(bytes);
    let whole = decode(bytes, bytes.len().max(1));
    // A decoder must not notice how the bytes came.
    assert_eq!(decode(bytes, usize::from(*first) + 1), whole);
    let mut again = Vec::new();
    for frame in &whole.0 {
        wire::encode(frame, &mut again).expect("a frame that was decoded is not too long");
    }
    let (frames, is_over) = decode(&again, again.len().max(1));
    assert!(frames == whole.0 && !is_over, "a frame is decoded as it was encoded");
}

/// Returns the frames, and whether an error ended them.
fn decode(bytes: &[u8], chunk: usize) -> (Vec<Frame>, bool) {
    let (mut decoder, mut frames) = (Decoder::new(), Vec::new());
    for chunk in bytes.chunks(chunk) {
        decoder.feed(chunk);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return (frames, true);
                }
            }
        }
    }
    (frames, false)
}

fn preamble(bytes: &[u8]) {
    let Some(first) = bytes.first_chunk::<PREAMBLE_LEN>() else { return };
    let is_ours = *first == wire::preamble();
    assert_eq!(wire::check_preamble(first).is_ok(), is_ours);
}
