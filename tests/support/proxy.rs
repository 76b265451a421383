//! A TCP proxy to the database; what it does with the bytes is decided by who opens it.

use std::net::SocketAddr;

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::statements::message;
use crate::story::host_of;

/// A proxy; clones are the same one.
#[derive(Clone)]
pub(crate) struct Proxy {
    address: SocketAddr,
    target: String,
}

/// The ends of one connection through the proxy.
pub(crate) struct Ends {
    pub(crate) from_client: OwnedReadHalf,
    pub(crate) to_client: OwnedWriteHalf,
    pub(crate) from_server: OwnedReadHalf,
    pub(crate) to_server: OwnedWriteHalf,
}

impl Proxy {
    /// Opens a proxy to the host of `dsn`, and gives each connection to `pass`.
    pub(crate) fn open<P, F>(dsn: &str, pass: P) -> Self
    where
        P: Fn(Ends) -> F + Clone + Send + 'static,
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let target = host_of(dsn).to_owned();
        let listener =
            app::bind_listener(([127, 0, 0, 1], 0).into()).unwrap_or_else(|error| panic!("no port: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        tokio::spawn(accept(listener, target.clone(), pass));
        Self { address, target }
    }

    /// The same DSN, through this proxy.
    pub(crate) fn dsn(&self, dsn: &str) -> String {
        dsn.replace(&self.target, &self.address.to_string())
    }
}

async fn accept<P, F>(listener: TcpListener, target: String, pass: P)
where
    P: Fn(Ends) -> F + Clone + Send + 'static,
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    while let Ok((client, _)) = listener.accept().await {
        let (target, pass) = (target.clone(), pass.clone());
        tokio::spawn(async move {
            let ends = Ends::of(client, &target).await?;
            let passing = pass(ends);
            passing.await
        });
    }
}

impl Ends {
    async fn of(client: TcpStream, target: &str) -> std::io::Result<Self> {
        let server = TcpStream::connect(target).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        Ok(Self { from_client, to_client, from_server, to_server })
    }
}

/// The types of the complete messages, and the number of their bytes.
pub(crate) fn complete_messages(bytes: &[u8]) -> (Vec<u8>, usize) {
    let (mut kinds, mut taken) = (Vec::new(), 0);
    while let Some(whole) = message(&bytes[taken..]) {
        kinds.push(whole[0]);
        taken += whole.len();
    }
    (kinds, taken)
}
