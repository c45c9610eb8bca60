//! One client's connection: frames in, answers out, one request after the other.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::{ANSWERS_MAX, Shared};
use crate::cluster::{Answer, ConnectionId};

/// The largest request a client may send.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Bytes read ahead while a request waits for its answer.
const AHEAD_BYTES_MAX: usize = 64 << 10;

pub(super) async fn run(shared: Arc<Shared>, node: i32, stream: TcpStream) {
    let Some(connection) = shared.cluster.lock().connect(node) else { return };
    let (writer, answers) = mpsc::channel(ANSWERS_MAX);
    shared.writers.lock().insert(connection, writer);
    let ended = tokio::select! {
        ended = serve(&shared, connection, stream, answers) => ended,
        () = shared.stopping.cancelled() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, node, "a connection to the share broker ended");
    }
    shared.writers.lock().remove(&connection);
    let mut cluster = shared.cluster.lock();
    cluster.disconnect(shared.now(), connection);
    shared.rearm(&cluster);
}

async fn serve(
    shared: &Shared,
    connection: ConnectionId,
    mut stream: TcpStream,
    mut answers: mpsc::Receiver<Answer>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BytesMut::new();
    let mut waits = false;
    loop {
        while !waits && let Some(frame) = next_frame(&mut input)? {
            let now = {
                let mut cluster = shared.cluster.lock();
                let now = cluster.handle_frame(shared.now(), connection, frame);
                shared.rearm(&cluster);
                now
            };
            // As a real node does, no other request of this connection is looked at before this one is answered.
            waits = now.is_empty();
            for answer in now {
                if !write(&mut stream, answer).await? {
                    return Ok(());
                }
            }
        }
        let may_read = input.len() < if waits { AHEAD_BYTES_MAX } else { REQUEST_BYTES_MAX + 4 };
        tokio::select! {
            read = stream.read_buf(&mut input), if may_read => {
                if read? == 0 {
                    return Ok(());
                }
            }
            answer = answers.recv() => {
                let Some(answer) = answer else { return Ok(()) };
                waits = false;
                if !write(&mut stream, answer).await? {
                    return Ok(());
                }
            }
        }
    }
}

/// The next whole frame, without its length.
fn next_frame(input: &mut BytesMut) -> std::io::Result<Option<Bytes>> {
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > REQUEST_BYTES_MAX {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "the request is too large"));
    }
    if input.len() < 4 + length {
        return Ok(None);
    }
    input.advance(4);
    Ok(Some(input.split_to(length).freeze()))
}

/// Writes an answer; whether the connection goes on.
async fn write(stream: &mut TcpStream, answer: Answer) -> std::io::Result<bool> {
    match answer {
        Answer::Response(response) => {
            let frame = response.encode().map_err(std::io::Error::other)?;
            stream.write_all(&frame).await?;
            Ok(true)
        }
        Answer::Bytes(bytes) => {
            stream.write_all(&bytes).await?;
            Ok(true)
        }
        Answer::Disconnect => Ok(false),
    }
}
