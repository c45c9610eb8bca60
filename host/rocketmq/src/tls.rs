//! TLS as chosen: the system's roots, a CA file, or anyone.
//!
//! gRPC's own TLS cannot be told to accept any certificate, and hides why a handshake failed. So all of it is done
//! here, in the connector.

use std::sync::Arc;

use rustls::ClientConfig;
use tidegate_connector::tls::{
    Client, Identity, OptionNames as TlsNames, Pem, ServerNameCheck, Trust as Believed,
};
pub use tidegate_connector::tls::{TlsError, Wanted as TlsFile};

use crate::options::{ClientOptions, OptionNames, Tls, Trust};

/// Looks at every file that the options name, and at whether key and certificate belong together; opens no connection.
#[must_use]
pub fn check_tls_files(options: &ClientOptions) -> Vec<TlsError> {
    client(&options.tls).map(|client| client.check(&names(options.names))).unwrap_or_default()
}

/// Reads the files and makes the configuration; `None` when TLS is off.
pub(crate) fn load(tls: &Tls, option_names: &OptionNames) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    let Some(client) = client(tls) else { return Ok(None) };
    let mut config = client.config(&names(option_names))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// What was chosen, in the words that all connectors share; `None` when TLS is off.
fn client(tls: &Tls) -> Option<Client> {
    let Tls::On { trust, identity } = tls else { return None };
    Some(Client {
        trust: match trust {
            Trust::SystemRoots => Believed::SystemRoots,
            Trust::CaFile(path) => Believed::Certificates(Pem::File(path.clone())),
            Trust::Anyone => Believed::Anyone,
        },
        server_name: ServerNameCheck::On,
        identity: identity.as_ref().map(|files| Identity {
            certificates: Pem::File(files.certificates.clone()),
            key: Pem::File(files.key.clone()),
        }),
    })
}

fn names(names: &OptionNames) -> TlsNames {
    TlsNames {
        trust: names.tls_ca_file,
        certificates: names.tls_cert_file.unwrap_or("the certificate"),
        key: names.tls_key_file.unwrap_or("the key"),
    }
}

#[cfg(test)]
mod tests;
