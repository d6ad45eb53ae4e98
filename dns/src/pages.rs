//! The server's pages for scrapers and probes.

use crate::configuration::{Configuration, Listen};
use crate::metrics::{Metrics, SERVER};
use crate::views::Views;
use coracle_listen::page;
use coracle_metrics::{CONTENT_TYPE, Text};
use parking_lot::RwLock;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Writes the page: what is counted, and what is known at this moment.
fn render(metrics: &Metrics, views: &Views) -> String {
    let mut text = Text::default();
    metrics.render(&mut text);
    text.head("coredns_cache_entries", "Answers that are kept.", "gauge");
    for view in views.all() {
        let Some(cache) = &view.cache else { continue };
        let (successes, denials) = cache.entries();
        for (kind, entries) in [("success", successes), ("denial", denials)] {
            let labels = [("server", SERVER), ("type", kind), ("zones", view.zone_label()), ("view", "")];
            text.sample("coredns_cache_entries", &labels, entries);
        }
    }
    let name = "coredns_hosts_entries";
    text.single(
        name,
        "Names of the plugin hosts.",
        "gauge",
        views.all().filter_map(|v| v.settings.hosts.as_ref()).map(|h| h.addresses.len()).sum::<usize>(),
    );
    let version = env!("CARGO_PKG_VERSION");
    text.head("coredns_build_info", "What this server is a build of; always 1.", "gauge");
    text.sample("coredns_build_info", &[("goversion", ""), ("revision", ""), ("version", version)], 1);
    text.finish()
}

/// Who may ask for pages: as who may ask for names.
pub type MayAsk = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// The pages of a configuration, served until this is dropped.
#[derive(Default)]
pub struct Pages(JoinSet<()>);

impl Pages {
    /// Ends them. Their ports are free when this returns.
    pub async fn end(mut self) {
        self.0.shutdown().await;
    }
}

/// What the pages tell of.
#[derive(Clone)]
pub struct Shown {
    pub metrics: Arc<Metrics>,
    pub views: Arc<RwLock<Arc<Views>>>,
    pub may_ask: MayAsk,
}

/// Serves the pages that the configuration has, at the server's own address unless it names another. A port that cannot be
/// had is told, and names are answered all the same.
pub async fn pages(configuration: &Configuration, own: IpAddr, shown: &Shown) -> Pages {
    let wanted = [
        (configuration.metrics, "/metrics"),
        (configuration.health, "/health"),
        (configuration.ready, "/ready"),
    ];
    let mut pages = Pages::default();
    for (listen, path) in wanted {
        let Some(Listen { ip, port }) = listen else { continue };
        let address = SocketAddr::new(ip.unwrap_or(own), port);
        match TcpListener::bind(address).await {
            Ok(listener) => drop(pages.0.spawn(serve(listener, path, shown.clone()))),
            Err(error) => {
                tracing::warn!(%address, %error, "the page {path} of the cluster's DNS is not served")
            }
        }
    }
    pages
}

async fn serve(listener: TcpListener, path: &'static str, shown: Shown) {
    loop {
        let stream = page::next(|| listener.accept()).await;
        if !stream.peer_addr().is_ok_and(|peer| (shown.may_ask)(peer.ip().to_canonical())) {
            continue;
        }
        let shown = shown.clone();
        tokio::spawn(page::respond_as(stream, move |asked, _| match asked {
            asked if asked != path => {
                ("404 Not Found", PLAIN, String::new(), "404 page not found\n".to_owned())
            }
            "/metrics" => {
                let views = shown.views.read().clone();
                ("200 OK", CONTENT_TYPE, String::new(), render(&shown.metrics, &views))
            }
            _ => ("200 OK", PLAIN, String::new(), "OK".to_owned()),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Given;
    use std::collections::BTreeSet;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn pages_are_there_for_those_who_may_ask_and_go_with_their_configuration() {
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let text = format!(".:53 {{\n prometheus :{port}\n cache\n forward . 192.0.2.1\n}}");
        let given = Given { domain: "cluster.local".to_owned() };
        let configuration = Configuration::read(&text, &given).expect("a configuration");
        let metrics = Arc::new(Metrics::default());
        let views = Views::new(&configuration, &BTreeSet::new(), &metrics);
        let own = IpAddr::from([127, 0, 0, 1]);
        let views = Arc::new(RwLock::new(Arc::new(views)));
        let may_ask: MayAsk = Arc::new(move |ip| ip == own);
        let pages = pages(&configuration, own, &Shown { metrics, views, may_ask }).await;
        let ask = |from: &'static str, path: &'static str| async move {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("bound");
            let mut stream: TcpStream = socket.connect(SocketAddr::new(own, port)).await.expect("connected");
            let _ = stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await;
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer).await;
            answer
        };
        let page = ask("127.0.0.1", "/metrics").await;
        assert!(
            page.contains(
                "\ncoredns_cache_entries{server=\"dns://:53\",type=\"success\",zones=\".\",view=\"\"} 0\n"
            ),
            "{page}"
        );
        assert!(ask("127.0.0.1", "/x").await.starts_with("HTTP/1.1 404"));
        assert_eq!(ask("127.0.0.9", "/metrics").await, "", "no stranger");
        pages.end().await;
        drop(TcpListener::bind((own, port)).await.expect("the port is free"));
    }
}
