//! A shared secret: the short way to TLS for hosts without a certificate authority.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use farreach_text::shell_word;
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::SigningKey;
use zeroize::Zeroizing;

use super::identity::Identity;
use super::private_file;
use crate::Error;

/// The length of a new secret.
const LEN: usize = 32;

/// The shortest secret: 128 bits.
const LEN_MIN: usize = 16;

/// The longest secret. More bits add nothing: the key has 256.
const LEN_MAX: usize = 64;

/// Bytes that are read of a file: the digits of the longest secret, with room for white space.
const FILE_MAX: usize = 2 * LEN_MAX + 16;

/// Fewer different bytes than this, and the secret is not random. Of 16 random bytes, fewer than 8
/// are different with a probability of about 10⁻¹².
const DIFFERENT_MIN: usize = 8;

/// Both sides must derive the same key: a change of these breaks every secret in use.
const SALT: &[u8] = b"farreach shared secret";
const INFO: &[u8] = b"farreach control connection 1: Ed25519 key";

/// PKCS#8 of an Ed25519 key, up to the 32 bytes of the key (RFC 8410).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A secret that both sides of a control connection share, instead of certificates.
///
/// It is a text of 32 to 128 hexadecimal digits from a random generator: at least 128 random bits.
/// `farreach secret new FILE` and [`create`](Self::create) make one of 256 bits.
/// [`Settings::secret`](crate::Settings::secret) gives it to an engine.
///
/// Both sides derive the same Ed25519 key pair from it, by HKDF-SHA256. Each accepts only this
/// public key, in TLS 1.3, and a signature of the handshake by it. The secret itself is never sent.
///
/// **Every holder of the secret can pretend to be any other**: to a client, any holder is the
/// server. Hosts that do not trust each other need certificates ([`Tls`](crate::Tls)). A secret has
/// no end and cannot be revoked: to exclude a holder, give the others a new one.
///
/// ```no_run
/// use farreach::{Engine, Secret, Settings};
///
/// # fn main() -> Result<(), farreach::Error> {
/// let secret = Secret::from_file("/etc/farreach/secret")?;
/// let engine = Engine::with(Settings::new().secret(secret))?;
/// let address = engine.listen("0.0.0.0:18520")?;
/// # drop(address);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Secret {
    /// The key pair. The digits are not kept.
    pub(super) identity: Arc<Identity>,
}

impl Secret {
    /// Makes a new secret of 256 random bits and writes it to a new file, which only its owner may
    /// read. An existing file is never changed.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), farreach::Error> {
    /// let secret = farreach::Secret::create("farreach.secret")?;
    /// # drop(secret);
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |cause: String, fix: &str| {
            Error::tls(&format!("make the secret {}", path.display()), &cause, fix)
        };
        let mut bytes = Zeroizing::new([0; LEN]);
        SystemRandom::new().fill(&mut *bytes).map_err(|_| {
            failed("the system has no random bytes".to_owned(), "check that `/dev/urandom` can be read")
        })?;
        // Of its final length: growing would leave copies that nobody erases.
        let mut digits = Zeroizing::new(String::with_capacity(2 * LEN + 1));
        for byte in bytes.iter() {
            for digit in [byte >> 4, byte & 0xf] {
                digits.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        digits.push('\n');
        // Created with its mode, so that nobody can open it before. `create_new` follows no link
        // that somebody has put there.
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
                let fix = match error.kind() {
                    std::io::ErrorKind::AlreadyExists => "use this file, or choose another name",
                    _ => "choose a folder that exists and in which this user may write",
                };
                failed(crate::error::words(&error), fix)
            })?;
        // `sync_all` reports errors of writes that the kernel has delayed.
        file.write_all(digits.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
            // A file without the whole secret is of no use, and would be in the way of the next try.
            let _ = std::fs::remove_file(path);
            failed(crate::error::words(&error), "free space in this file system")
        })?;
        Self::of(&*bytes).map_err(|cause| failed(cause, "make another one"))
    }

    /// Reads a secret from a file. It must belong to this user or to root, and nobody else may have
    /// access to it; a group may read a file of root.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), farreach::Error> {
    /// let secret = farreach::Secret::from_file("farreach.secret")?;
    /// # drop(secret);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let operation = format!("read the secret in {}", path.display());
        let unreadable = |error: std::io::Error| {
            let fix = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    format!(
                        "copy the secret of the other side to this file, or make one:\nfarreach secret new {}",
                        shell_word(&path.to_string_lossy())
                    )
                }
                _ => "check that it is a file and that this user may read it".to_owned(),
            };
            Error::tls(&operation, &crate::error::words(&error), &fix)
        };
        let bytes = private_file::read(path, FILE_MAX, &operation, &unreadable)?;
        // A text that is no digit: `parse` refuses it, and shows nothing of the file.
        let text = std::str::from_utf8(&bytes).unwrap_or("-");
        Self::parse(text).map_err(|cause| {
            let fix = format!(
                "make a new secret for both sides:\nfarreach secret new {}.new",
                shell_word(&path.to_string_lossy())
            );
            Error::tls(&operation, &cause, &fix)
        })
    }

    /// Parses the digits. The error is the cause, and contains nothing of the secret.
    fn parse(text: &str) -> Result<Self, String> {
        let digits = text.trim_ascii().as_bytes();
        if digits.is_empty() {
            return Err("it is empty".to_owned());
        }
        let value = |digit: &u8| char::from(*digit).to_digit(16).map(|value| value as u8);
        // Of the greatest length that is pushed, so that it leaves no copies by growing.
        let mut bytes = Zeroizing::new(Vec::with_capacity(LEN_MAX + 1));
        // One pair more than allowed shows that there are too many, whatever the length of the
        // text.
        for pair in digits.chunks(2).take(LEN_MAX + 1) {
            match pair {
                [high, low] => match (value(high), value(low)) {
                    (Some(high), Some(low)) => bytes.push(high << 4 | low),
                    _ => return Err("it contains something besides hexadecimal digits (0-9, a-f)".to_owned()),
                },
                _ => return Err("it has an odd number of digits: one may be missing".to_owned()),
            }
        }
        if bytes.len() > LEN_MAX {
            return Err(format!("it has more than {} hexadecimal digits", 2 * LEN_MAX));
        }
        if bytes.len() < LEN_MIN {
            let bits = bytes.len() * 8;
            return Err(format!("it has {bits} bits, and at least {} random bits are needed", LEN_MIN * 8));
        }
        if is_pattern(&bytes) {
            return Err("it is a pattern: at least 128 random bits are needed".to_owned());
        }
        Self::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Result<Self, String> {
        let identity = signing_key(bytes).and_then(Identity::of_secret);
        identity.map(|identity| Self { identity: Arc::new(identity) }).map_err(|error| error.to_string())
    }
}

/// Derives the key pair that both sides present.
fn signing_key(secret: &[u8]) -> Result<Arc<dyn SigningKey>, rustls::Error> {
    let mut key = Zeroizing::new([0; PKCS8.len() + 32]);
    key[..PKCS8.len()].copy_from_slice(&PKCS8);
    let derived = Salt::new(HKDF_SHA256, SALT).extract(secret);
    derived
        .expand(&[INFO], Ed25519Seed)
        .and_then(|okm| okm.fill(&mut key[PKCS8.len()..]))
        .map_err(|_| rustls::Error::General("no key can be derived from the secret".to_owned()))?;
    rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&key[..]))
}

/// The length of the key that HKDF derives.
struct Ed25519Seed;

impl KeyType for Ed25519Seed {
    fn len(&self) -> usize {
        32
    }
}

/// Returns whether the bytes were obviously typed and not drawn: few different ones, the same ones
/// again, or a series with a constant step.
fn is_pattern(bytes: &[u8]) -> bool {
    let mut seen = [false; 256];
    bytes.iter().for_each(|byte| seen[usize::from(*byte)] = true);
    let different = seen.iter().filter(|seen| **seen).count();
    let repeats = |period: usize| bytes[period..].iter().zip(bytes).all(|(later, earlier)| later == earlier);
    let step = |pair: &[u8]| pair[1].wrapping_sub(pair[0]);
    // `step(bytes)` takes the first two bytes. There are at least `LEN_MIN`.
    let is_series = bytes.windows(2).all(|pair| step(pair) == step(bytes));
    different < DIFFERENT_MIN || (1..=bytes.len() / 2).any(repeats) || is_series
}

/// Parses the text of a secret: 32 to 128 hexadecimal digits.
///
/// ```
/// use farreach::{ErrorKind, Secret};
///
/// let error = "correct horse battery staple".parse::<Secret>().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Tls);
/// assert!(error.fix().contains("farreach secret new"));
/// ```
impl FromStr for Secret {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).map_err(|cause| {
            let fix = "make a secret for both sides:\nfarreach secret new farreach.secret";
            Error::tls("parse a secret", &cause, fix)
        })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of it may get into a log.
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    const GOOD: &str = "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e";

    fn refusal(text: &str) -> String {
        text.parse::<Secret>().unwrap_err().cause().to_owned()
    }

    #[test]
    fn at_least_128_random_bits_in_hexadecimal_are_taken() {
        for text in [
            GOOD,
            &GOOD.to_uppercase(),
            &format!(" {GOOD}\n"),
            &GOOD[..32],
            &format!("{GOOD}{}", GOOD.chars().rev().collect::<String>()),
        ] {
            text.parse::<Secret>().unwrap();
        }
        for (text, cause) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            (&GOOD[..31], "odd number of digits"),
            (&GOOD[..30], "it has 120 bits"),
            ("correct horse battery staple, which is long", "besides hexadecimal digits"),
            ("é1d7a9c03e2b846d1f0a37c9be45826", "besides hexadecimal digits"),
            (&"00".repeat(32), "a pattern"),
            (&"deadbeef".repeat(8), "a pattern"),
            (&"0123456789abcdef".repeat(2), "a pattern"),
            (&GOOD[..32].repeat(2), "a pattern"),
            ("000102030405060708090a0b0c0d0e0f", "a pattern"),
            ("ffeeddccbbaa99887766554433221100", "a pattern"),
            (&GOOD.repeat(3), "more than 128"),
            (&GOOD.repeat(100_000), "more than 128"),
        ] {
            let told = refusal(text);
            assert!(told.contains(cause), "{text:.80}: {told}");
            assert!(text.trim().len() < 16 || !told.contains(text.trim()), "the secret is in its error");
        }
    }

    /// Two releases derive the same key. The expected one was computed by other software: HKDF and
    /// Ed25519 of Python's `cryptography`.
    #[test]
    fn the_key_of_a_secret_stays_the_same() {
        let secret: Vec<u8> = GOOD
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let public = signing_key(&secret).unwrap().public_key().unwrap().to_vec();
        let hex: String = public.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "302a300506032b657003210010aca6c6bb281651d0bf3451fef0276f655f185b9fbf9bf45dcd69de0eb154df"
        );
    }

    #[test]
    fn a_new_secret_is_in_a_file_of_its_own() {
        let path = std::env::temp_dir().join(format!("farreach-secret-{}", std::process::id()));
        let made = Secret::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        Secret::from_file(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((text.len(), text.trim().len()), (65, 64));
        let again = Secret::create(&path).unwrap_err();
        assert!(again.cause().contains("exists"), "{again:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing is overwritten");
        assert!(!format!("{made:?}").contains(text.trim()));
        for mode in [0o644, 0o640, 0o604, 0o660, 0o620] {
            // Root may let a group read it, and these tests may run as root.
            let is_fine = mode == 0o640 && fs::metadata(&path).unwrap().uid() == 0;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = Secret::from_file(&path);
            assert_eq!(read.is_ok(), is_fine, "{mode:o}");
            if let Err(error) = read {
                assert!(error.cause().contains(&format!("mode {mode:04o}")), "{error:?}");
                assert!(error.fix().ends_with(&format!("\nchmod 600 {}", path.display())), "{error:?}");
            }
        }
        fs::remove_file(&path).unwrap();
        let error = Secret::from_file(&path).unwrap_err();
        assert!(error.fix().contains(&format!("\nfarreach secret new {}", path.display())), "{error:?}");
    }

    #[test]
    fn a_folder_is_not_a_secret() {
        let error = Secret::from_file("/tmp").unwrap_err();
        assert!(error.cause().contains("directory") && !error.fix().contains("chmod"), "{error:?}");
    }

    /// A file that never ends is not read to its end.
    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = Secret::from_file("/dev/zero").unwrap_err();
        assert!(error.cause().contains("access") || error.cause().contains("digits"), "{error:?}");
    }
}
