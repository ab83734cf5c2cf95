//! A certificate authority in a folder.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use farreach::TlsSession;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use super::failure;
use crate::exit::Failure;
use crate::session::open_folder;
use crate::units;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a CA is valid: longer than anybody wants to think of it. Its certificates end sooner.
const CA_DAYS: u32 = 20 * 365;

/// A CA: its key, and its certificate.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    name: String,
    certificate: String,
}

/// A certificate with its key, as PEM.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
    /// The last day: `2027-11-17`.
    pub(super) until: String,
}

impl Authority {
    pub(super) fn generate() -> Result<Self, Failure> {
        let key = KeyPair::generate().map_err(not_made)?;
        let (name, parameters) = of_key(&key);
        let certificate = parameters.self_signed(&key).map_err(not_made)?.pem();
        Ok(Self { issuer: Issuer::new(parameters, key), name, certificate })
    }

    /// Reads the CA in a folder.
    pub(super) fn open(folder: &Path) -> Result<Self, Failure> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|error| {
                failure(format!("cannot read {}", path.display()), error)
                    .fix("choose another DIR, or one whose CA is complete")
            })
        };
        let certificate = read("cert.pem")?;
        let key = KeyPair::from_pem(&read("key.pem")?).map_err(|error| {
            failure(format!("cannot use {}", folder.join("key.pem").display()), error)
                .fix("choose another DIR: this is not the key of a CA that farreach has made")
        })?;
        // The name of a CA follows from its key, so that its certificate need not be parsed.
        let (name, parameters) = of_key(&key);
        Ok(Self { issuer: Issuer::new(parameters, key), name, certificate })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its certificate, as PEM.
    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns its key, as PEM.
    pub(super) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate for these names and addresses, for client and server.
    pub(super) fn issue(&self, names: &[String], days: u32) -> Result<Issued, Failure> {
        let mut parameters = CertificateParams::new(names).map_err(not_made)?;
        parameters.distinguished_name = common_name(&names[0]);
        let until = validity(&mut parameters, days);
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(not_made)?;
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(not_made)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem(), until })
    }
}

/// Returns the name and the parameters of the CA with this key. Each CA has another name, so that an
/// error can tell which one has issued a certificate.
fn of_key(key: &KeyPair) -> (String, CertificateParams) {
    let mut parameters = CertificateParams::default();
    let id: String =
        parameters.key_identifier(key).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let name = format!("farreach CA {id}");
    parameters.distinguished_name = common_name(&name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity(&mut parameters, CA_DAYS);
    (name, parameters)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Sets the dates. It begins yesterday, because clocks differ. Returns the last day.
fn validity(parameters: &mut CertificateParams, days: u32) -> String {
    let now = SystemTime::now();
    let end = now + DAY * days;
    parameters.not_before = (now - DAY).into();
    parameters.not_after = end.into();
    units::utc(end)[..10].to_owned()
}

fn not_made(error: rcgen::Error) -> Failure {
    failure("cannot make a certificate".to_owned(), error)
        .fix("check that the system's random number generator works")
}

/// Checks the files of a host by a TLS handshake with itself: that the key is the certificate's, and
/// that the CA has issued it for this name.
pub(super) fn check(folder: &Path, name: &str) -> Result<(), String> {
    let tls = open_folder(folder).map_err(|error| error.to_string())?;
    let client = tls.connecting(name).map_err(|error| error.to_string())?;
    let server = tls.accepting().map_err(|error| error.to_string())?;
    let (mut client, mut server): (TlsSession, TlsSession) = (client.into(), server.into());
    while client.is_handshaking() || server.is_handshaking() {
        if !(pass(&mut client, &mut server)? | pass(&mut server, &mut client)?) {
            return Err("the TLS handshake does not end".to_owned());
        }
    }
    Ok(())
}

/// Passes the bytes of one side to the other. Returns whether there were any.
fn pass(from: &mut TlsSession, to: &mut TlsSession) -> Result<bool, String> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).map_err(|error| error.to_string())?;
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).map_err(|error| error.to_string())?;
        if let Err(error) = to.process_new_packets() {
            return Err(to.explain(&error).cause().to_owned());
        }
    }
    Ok(!bytes.is_empty())
}
