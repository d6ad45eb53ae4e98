//! What a container is told: environment, downward API, its service account.

use crate::node::{Steps, pod, running_pod};
use coracle_tests::Shell;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("environment", environment);
    steps.run("service-account", service_account);
}

fn environment(shell: &Shell) {
    shell.ok("kubectl create configmap settings --from-literal=colour=red --from-literal=size=big");
    shell.ok("kubectl create secret generic password --from-literal=word=sesame");
    let more = r#"env:
- {name: PLAIN, value: "$(COLOUR)-$(NOWHERE)-$$(COLOUR)"}
- {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
- {name: AFTER, value: "$(COLOUR) after"}
- {name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}
- {name: MAYBE, valueFrom: {configMapKeyRef: {name: missing, key: x, optional: true}}}
- {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
- {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
envFrom:
- {prefix: S_, configMapRef: {name: settings}}
resources: {limits: {memory: 64Mi}}"#;
    running_pod(shell, "told", "env; sleep 3600", more);
    let address = shell.ok("kubectl get pod told -o jsonpath='{.status.podIP}'");
    let env = shell.ok("kubectl exec told -- env");
    for wanted in [
        "PLAIN=$(COLOUR)-$(NOWHERE)-$(COLOUR)",
        "COLOUR=red",
        "AFTER=red after",
        "WORD=sesame",
        "POD=told",
        "NAMESPACE=environment",
        &format!("ADDRESS={address}"),
        "LABEL=told",
        "MEMORY=64",
        "S_colour=red",
        "S_size=big",
        "FROM_IMAGE=yes",
        "KUBERNETES_SERVICE_HOST=10.43.0.1",
        "KUBERNETES_SERVICE_PORT=443",
        "HOSTNAME=told",
    ] {
        assert!(env.lines().any(|line| line == wanted), "{wanted} is missing from\n{env}");
    }
    assert!(!env.contains("MAYBE="), "{env}");
    shell.apply(&pod(
        "lacking",
        "true",
        "env:\n- {name: X, valueFrom: {configMapKeyRef: {name: missing, key: x}}}",
    ));
    shell.until("kubectl get pod lacking --no-headers | awk '{print $3}'", "CreateContainerConfigError");
    shell.says(
        "kubectl get pod lacking -o jsonpath='{.status.containerStatuses[0].state.waiting.message}'",
        "configmap \"missing\" not found",
    );
}

fn service_account(shell: &Shell) {
    shell.ok("kubectl create serviceaccount robot && kubectl create role reader --verb=list --resource=pods && kubectl create rolebinding readers --role=reader --serviceaccount=service-account:robot");
    let manifest =
        pod("robot", "sleep 3600", "").replace("  containers:", "  serviceAccountName: robot\n  containers:");
    shell.apply(&manifest);
    shell.ok("kubectl wait pod/robot --for=condition=Ready --timeout=100s");
    let dir = "/var/run/secrets/kubernetes.io/serviceaccount";
    shell.says(&format!("kubectl exec robot -- ls {dir}"), "ca.crt\nnamespace\ntoken");
    shell.says(&format!("kubectl exec robot -- cat {dir}/namespace"), "service-account");
    shell.ok(&format!(
        "kubectl exec robot -- cat {dir}/token >token && kubectl exec robot -- cat {dir}/ca.crt >ca.crt"
    ));
    let ask = "curl -s --cacert ca.crt -H \"Authorization: Bearer $(cat token)\" -o answer -w '%{http_code}' https://10.43.0.1";
    shell.says(&format!("{ask}/api/v1/namespaces/service-account/pods"), "200");
    shell.says("jq -r '.items[].metadata.name' answer", "robot");
    shell.says(&format!("{ask}/api/v1/namespaces/service-account/secrets"), "403");
    let inside = "kubectl exec robot -- sh -c 'timeout 10 wget -qO- --no-check-certificate --header \"Authorization: Bearer $(cat /var/run/secrets/kubernetes.io/serviceaccount/token)\" https://kubernetes.default.svc/version'";
    let output = shell.run(inside);
    assert!(
        output.stdout.contains("v1.36")
            || output.stderr.contains("TLS")
            || output.stderr.contains("unrecognized"),
        "{output}"
    );
}
