//! Certificates for both sides of a connection, good and bad.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};

/// A certificate authority: a key and a certificate that exist in this process alone.
///
/// ```
/// let authority = farreach_testkit::Authority::new("the house");
/// let here = authority.certify(&["127.0.0.1", "storage-7"]);
/// assert!(here.certificate.contains("BEGIN CERTIFICATE") && here.key.contains("PRIVATE KEY"));
/// ```
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Authority {
    /// Creates an authority of this name, with a key of its own: another one of the same name has
    /// another key.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key can be generated");
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = common_name(name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).expect("an authority signs itself").pem();
        Self { issuer: Issuer::new(parameters, key), certificate }
    }

    /// Returns its own certificate, as PEM: a root for sides that trust it.
    pub fn root(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for these names and addresses, valid from a day ago for a year.
    pub fn certify(&self, names: &[&str]) -> Certificate {
        self.certify_for_days(names, 365)
    }

    /// Issues a certificate that is valid for this number of days more.
    pub fn certify_for_days(&self, names: &[&str], days: i32) -> Certificate {
        self.issue(names, -1..days, &[])
    }

    /// Issues a certificate that was valid until yesterday.
    pub fn certify_expired(&self, names: &[&str]) -> Certificate {
        self.issue(names, -2..-1, &[])
    }

    /// Issues a certificate that is valid from tomorrow on.
    pub fn certify_for_later(&self, names: &[&str]) -> Certificate {
        self.issue(names, 1..2, &[])
    }

    /// Issues a certificate for servers only.
    pub fn certify_server(&self, names: &[&str]) -> Certificate {
        self.issue(names, -1..365, &[ExtendedKeyUsagePurpose::ServerAuth])
    }

    fn issue(
        &self,
        names: &[&str],
        days: std::ops::Range<i32>,
        purposes: &[ExtendedKeyUsagePurpose],
    ) -> Certificate {
        let subject = common_name(names.first().unwrap_or(&"nobody"));
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut parameters = CertificateParams::new(names).expect("names, or addresses");
        parameters.distinguished_name = subject;
        parameters.not_before = in_days(days.start).into();
        parameters.not_after = in_days(days.end).into();
        parameters.extended_key_usages = purposes.to_vec();
        let key = KeyPair::generate().expect("a key can be generated");
        let signed = parameters.signed_by(&key, &self.issuer).expect("an authority signs");
        Certificate { certificate: signed.pem(), key: key.serialize_pem() }
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn in_days(days: i32) -> SystemTime {
    let distance = DAY * days.unsigned_abs();
    if days < 0 { SystemTime::now() - distance } else { SystemTime::now() + distance }
}
