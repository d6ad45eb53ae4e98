//! `coracle token`: the bootstrap tokens by which machines join, as kubeadm keeps them
//! (<https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>).

mod server;

use crate::args::{TokenAction, TokenArgs};
use crate::join::{Pin, Token};
use crate::kubeconfig::{authority, client, public_cluster};
use crate::table::{left, table};
use crate::time::Time;
use coracle_api::well_known;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use rand::Rng;
use std::collections::BTreeMap;
use std::process::ExitCode;

const TYPE: &str = well_known::BOOTSTRAP_TOKEN;
/// The group that the rights to join are bound to; kubeadm's.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// How long an agent's token is good.
const TTL: &str = "24h";
const USAGES: [&str; 2] = ["authentication", "signing"];

pub async fn command(args: TokenArgs) -> ExitCode {
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("coracle: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: TokenArgs) -> Result<(), String> {
    let client = client(&args.kubeconfig).await?;
    let api: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    match args.action {
        TokenAction::Create { token, ttl, description, print_join_command, server, data_dir } => {
            let token = token.map_or_else(|| Ok(random()), |text| Token::parse(&text))?;
            let wanted = Wanted { token, ttl, description, print_join_command };
            println!(
                "{}",
                if server {
                    server::create(client, wanted, &data_dir).await?
                } else {
                    create(client, wanted).await?
                }
            );
        }
        TokenAction::List => list(&api).await?,
        TokenAction::Delete { tokens } => {
            for text in tokens {
                delete(&api, &text).await?;
            }
        }
    }
    Ok(())
}

/// What a new token is to be.
struct Wanted {
    token: Token,
    ttl: Option<String>,
    description: Option<String>,
    print_join_command: bool,
}

/// Returns what is printed.
async fn create(client: kube::Client, wanted: Wanted) -> Result<String, String> {
    let Wanted { token, ttl, description, print_join_command } = wanted;
    let end = expiration(ttl.as_deref().unwrap_or(TTL), Timestamp::now())?;
    keep(&client, &token, secret(&token, end, description, GROUP)).await?;
    if print_join_command { join_command(client, &token).await } else { Ok(token.whole()) }
}

async fn keep(client: &kube::Client, token: &Token, secret: Secret) -> Result<Secret, String> {
    let api: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    match api.create(&PostParams::default(), &secret).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Err(format!("a token with id \"{}\" already exists", token.id))
        }
        other => other.map_err(said),
    }
}

fn said(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => format!("the API does not answer: {other}"),
    }
}

fn random() -> Token {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut random = rand::rng();
    let mut letters = |count| -> String {
        (0..count).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
    };
    Token { id: letters(6), secret: letters(16) }
}

/// `None` for a token without end.
fn expiration(ttl: &str, now: Timestamp) -> Result<Option<Timestamp>, String> {
    let wrong = || format!("ttl: \"{ttl}\" is no duration such as 24h or 1h30m; 0 is for ever");
    let Time(life) = ttl.parse().map_err(|_| wrong())?;
    if life.is_zero() { Ok(None) } else { now.checked_add(life).map(Some).map_err(|_| wrong()) }
}

fn secret(token: &Token, expiration: Option<Timestamp>, description: Option<String>, group: &str) -> Secret {
    let mut data = BTreeMap::from([
        ("token-id".to_owned(), token.id.clone()),
        ("token-secret".to_owned(), token.secret.clone()),
        ("auth-extra-groups".to_owned(), group.to_owned()),
    ]);
    data.extend(USAGES.map(|usage| (format!("usage-bootstrap-{usage}"), "true".to_owned())));
    // Whole seconds, as upstream reads it.
    data.extend(expiration.map(|end| ("expiration".to_owned(), end.strftime("%FT%TZ").to_string())));
    data.extend(description.map(|text| ("description".to_owned(), text)));
    let name = format!("bootstrap-token-{}", token.id);
    Secret {
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        type_: Some(TYPE.to_owned()),
        string_data: Some(data),
        ..Secret::default()
    }
}

/// Where `cluster-info` says that the cluster is, and the pins of its authorities: two while the authority is replaced.
async fn known(client: kube::Client) -> Result<(String, Vec<Pin>), String> {
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let map = maps.get("cluster-info").await.map_err(said)?;
    let text = map.data.unwrap_or_default().remove("kubeconfig").unwrap_or_default();
    let mut cluster = public_cluster(&text)?;
    let server = cluster.server.take().ok_or("cluster-info names no server")?;
    Ok((server, Pin::all_of(&authority(cluster)?)?))
}

/// What to type on the machine that is to join.
async fn join_command(client: kube::Client, token: &Token) -> Result<String, String> {
    let (server, pins) = known(client).await?;
    let pins: Vec<String> = pins.iter().map(ToString::to_string).collect();
    Ok(format!(
        "coracle agent --server {server} --token {} --discovery-token-ca-cert-hash {}",
        token.whole(),
        pins.join(",")
    ))
}

async fn list(api: &Api<Secret>) -> Result<(), String> {
    let only = ListParams::default().fields(&format!("type={TYPE}"));
    let secrets = api.list(&only).await.map_err(said)?;
    let now = Timestamp::now();
    let mut rows =
        vec![["TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS"].map(str::to_owned)];
    rows.extend(secrets.items.iter().filter_map(|secret| row(secret, now)));
    print!("{}", table(&rows));
    Ok(())
}

fn row(secret: &Secret, now: Timestamp) -> Option<[String; 6]> {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|d| d.get(key)).map(|b| b.0.as_slice()).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    let token = format!("{}.{}", text("token-id"), text("token-secret"));
    let token = Token::parse(&token).ok()?.whole();
    let end = text("expiration");
    let ttl = match end.parse::<Timestamp>() {
        Ok(end) if end > now => left(end.duration_since(now)),
        _ if end.is_empty() => "<forever>".to_owned(),
        _ => "<invalid>".to_owned(),
    };
    let usages = USAGES.into_iter().filter(|usage| text(&format!("usage-bootstrap-{usage}")) == "true");
    let usages = usages.collect::<Vec<_>>().join(",");
    Some([
        token,
        ttl,
        or(end, "<never>"),
        or(usages, "<none>"),
        or(text("description"), "<none>"),
        or(text("auth-extra-groups"), "<none>"),
    ])
}

async fn delete(api: &Api<Secret>, text: &str) -> Result<(), String> {
    let id = text.split('.').next().unwrap_or_default();
    let whole = Token::parse(&format!("{id}.0000000000000000"));
    whole.map_err(|_| format!("\"{id}\" is no token's id: six of a-z and 0-9"))?;
    match api.delete(&format!("bootstrap-token-{id}"), &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Err(format!("there is no token with the id \"{id}\""))
        }
        Err(error) => Err(said(error)),
        Ok(_) => {
            println!("bootstrap token \"{id}\" deleted");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use k8s_openapi::ByteString;

    #[test]
    fn tokens_end_when_they_should() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let end = |ttl: &str| expiration(ttl, now).map(|end| end.map(|end| end.to_string()));
        assert_eq!(end("1h30m"), Ok(Some("2026-01-01T01:30:00Z".to_owned())));
        assert_eq!(end("24h0m0s"), Ok(Some("2026-01-02T00:00:00Z".to_owned())));
        assert_eq!((end("0"), end("0s")), (Ok(None), Ok(None)));
        assert!(end("soon").is_err() && end("-1h").is_err());
    }

    #[test]
    fn a_token_is_shown_as_it_was_made() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let token = random();
        assert_eq!(Token::parse(&token.whole()), Ok(token.clone()));
        let mut made =
            secret(&token, expiration("25h", now).expect("a duration"), Some("for n2".to_owned()), GROUP);
        // As the server keeps it.
        let data = made.string_data.take().expect("data");
        made.data = Some(data.into_iter().map(|(k, v)| (k, ByteString(v.into_bytes()))).collect());
        let shown = row(&made, now).expect("a row");
        let rest = ["1d", "2026-01-02T01:00:00Z", "authentication,signing", "for n2", GROUP];
        assert_eq!((shown[0].as_str(), &shown[1..]), (token.whole().as_str(), &rest.map(str::to_owned)[..]));
        assert_eq!(row(&made, now + SignedDuration::from_hours(48)).expect("a row")[1], "<invalid>");
    }
}
