// What a user of the npm package @kubernetes/client-node does. Prints one line a check; ends with 1 when one failed.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const NS = 'javascript';
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const checks = [];
const check = (name, run) => checks.push([name, run]);

async function refused(code, promise) {
    try {
        await promise;
    } catch (e) {
        assert.equal(e.code, code, `${e.code} instead of ${code}: ${e.body ?? e}`);
        return JSON.parse(typeof e.body === 'string' ? e.body : JSON.stringify(e.body));
    }
    throw new Error(`not refused with ${code}`);
}

async function until(what, look) {
    for (let begun = Date.now(); Date.now() - begun < 30000; await new Promise((r) => setTimeout(r, 50))) {
        if (await look()) return;
    }
    throw new Error(`${what}: not within 30 s`);
}

const configMap = (name, data, labels) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, labels }, data });
const create = (name, data, labels) => core.createNamespacedConfigMap({ namespace: NS, body: configMap(name, data, labels) });

check('create, read, replace, delete', async () => {
    const made = await create('crud', { a: '1' });
    assert.ok(made.metadata.uid && made.metadata.creationTimestamp instanceof Date);
    await refused(409, create('crud'));
    const found = await core.readNamespacedConfigMap({ name: 'crud', namespace: NS });
    found.data.b = '2';
    const changed = await core.replaceNamespacedConfigMap({ name: 'crud', namespace: NS, body: found });
    assert.deepEqual(changed.data, { a: '1', b: '2' });
    const stale = await refused(409, core.replaceNamespacedConfigMap({ name: 'crud', namespace: NS, body: found }));
    assert.equal(stale.reason, 'Conflict');
    const status = await core.deleteNamespacedConfigMap({ name: 'crud', namespace: NS });
    assert.equal(status.status, 'Success');
    const gone = await refused(404, core.readNamespacedConfigMap({ name: 'crud', namespace: NS }));
    assert.equal(gone.message, 'configmaps "crud" not found');
});

check('patches of every kind', async () => {
    const template = {
        metadata: { labels: { app: 'web' } },
        spec: { containers: [{ name: 'web', image: 'nginx' }] },
    };
    const body = { metadata: { name: 'web' }, spec: { replicas: 1, selector: { matchLabels: { app: 'web' } }, template } };
    await apps.createNamespacedDeployment({ namespace: NS, body });
    const patch = (kind, body) =>
        apps.patchNamespacedDeployment({ name: 'web', namespace: NS, body }, k8s.setHeaderOptions('Content-Type', kind));
    const side = { spec: { template: { spec: { containers: [{ name: 'side', image: 'busybox' }] } } } };
    const merged = await patch(k8s.PatchStrategy.StrategicMergePatch, side);
    assert.deepEqual(merged.spec.template.spec.containers.map((c) => c.name).sort(), ['side', 'web']);
    const replaced = await patch(k8s.PatchStrategy.JsonPatch, [{ op: 'replace', path: '/spec/replicas', value: 2 }]);
    assert.equal(replaced.spec.replicas, 2);
    const labelled = await patch(k8s.PatchStrategy.MergePatch, { metadata: { labels: { x: 'y' } } });
    assert.deepEqual(labelled.metadata.labels, { x: 'y' });
    const scale = await apps.readNamespacedDeploymentScale({ name: 'web', namespace: NS });
    // Controllers write the status meanwhile.
    delete scale.metadata.resourceVersion;
    scale.spec.replicas = 3;
    const scaled = await apps.replaceNamespacedDeploymentScale({ name: 'web', namespace: NS, body: scale });
    assert.equal(scaled.spec.replicas, 3);
    await apps.deleteNamespacedDeployment({ name: 'web', namespace: NS });
});

check('server-side apply', async () => {
    const apply = (fieldManager, data, force) =>
        core.patchNamespacedConfigMap(
            { name: 'ssa', namespace: NS, body: configMap('ssa', data), fieldManager, force },
            k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.ServerSideApply),
        );
    const made = await apply('one', { a: '1', b: '1' });
    assert.deepEqual(made.metadata.managedFields.map((m) => [m.manager, m.operation]), [['one', 'Apply']]);
    const conflict = await refused(409, apply('two', { a: '2' }));
    assert.deepEqual(conflict.details.causes, [
        { reason: 'FieldManagerConflict', message: 'conflict with "one"', field: '.data.a' },
    ]);
    assert.deepEqual((await apply('two', { a: '2' }, true)).data, { a: '2', b: '1' });
    assert.deepEqual((await apply('one', {})).data, { a: '2' });
});

check('the object client', async () => {
    const client = k8s.KubernetesObjectApi.makeApiClient(config);
    const spec = { ...configMap('object', { a: '1' }), metadata: { name: 'object', namespace: NS } };
    assert.equal((await client.create(spec)).data.a, '1');
    assert.equal((await client.read(spec)).data.a, '1');
    const patched = await client.patch({ ...spec, data: { b: '2' } });
    assert.deepEqual(patched.data, { a: '1', b: '2' });
    const list = await client.list('v1', 'ConfigMap', NS);
    assert.ok(list.items.some((item) => item.metadata.name === 'object'));
    assert.equal((await client.delete(spec)).status, 'Success');
});

check('lists in chunks', async () => {
    for (let n = 0; n < 5; n++) await create(`chunk-${n}`, {}, { chunk: 'yes' });
    const names = [];
    let _continue;
    do {
        const page = await core.listNamespacedConfigMap({ namespace: NS, labelSelector: 'chunk', limit: 2, _continue });
        names.push(...page.items.map((item) => item.metadata.name));
        _continue = page.metadata._continue;
    } while (_continue);
    assert.deepEqual(names, [0, 1, 2, 3, 4].map((n) => `chunk-${n}`));
    await core.deleteCollectionNamespacedConfigMap({ namespace: NS, labelSelector: 'chunk' });
    const left = await core.listNamespacedConfigMap({ namespace: NS, labelSelector: 'chunk' });
    assert.equal(left.items.length, 0);
});

check('watch', async () => {
    const list = await core.listNamespacedConfigMap({ namespace: NS });
    const seen = [];
    const watching = await new k8s.Watch(config).watch(
        `/api/v1/namespaces/${NS}/configmaps`,
        { resourceVersion: list.metadata.resourceVersion, labelSelector: 'w=yes', allowWatchBookmarks: true },
        (type, object) => type === 'BOOKMARK' || seen.push(`${type} ${object.metadata.name}`),
        () => {},
    );
    await create('w1', {}, { w: 'yes' });
    const kind = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
    await core.patchNamespacedConfigMap({ name: 'w1', namespace: NS, body: { data: { a: '1' } } }, kind);
    await core.patchNamespacedConfigMap({ name: 'w1', namespace: NS, body: { metadata: { labels: { w: 'no' } } } }, kind);
    await until('three events', () => seen.length >= 3);
    watching.abort();
    assert.deepEqual(seen, ['ADDED w1', 'MODIFIED w1', 'DELETED w1']);
});

check('informer', async () => {
    const seen = [];
    const informer = k8s.makeInformer(
        config,
        `/api/v1/namespaces/${NS}/configmaps`,
        () => core.listNamespacedConfigMap({ namespace: NS, labelSelector: 'i=yes' }),
        'i=yes',
    );
    for (const event of ['add', 'update', 'delete']) {
        informer.on(event, (object) => seen.push(`${event} ${object.metadata.name}`));
    }
    informer.on('error', (e) => e.name === 'AbortError' || seen.push(`error ${e}`));
    await create('i1', { a: '1' }, { i: 'yes' });
    await informer.start();
    await until('the first object', () => seen.length === 1);
    const found = informer.get('i1', NS);
    assert.equal(found.data.a, '1');
    await core.replaceNamespacedConfigMap({ name: 'i1', namespace: NS, body: { ...found, data: { a: '2' } } });
    await until('the change', () => seen.length === 2);
    await core.deleteNamespacedConfigMap({ name: 'i1', namespace: NS });
    await until('the deletion', () => seen.length === 3);
    await informer.stop();
    assert.deepEqual(seen, ['add i1', 'update i1', 'delete i1']);
});

check('invalid objects are refused with their causes', async () => {
    const body = { metadata: { name: 'bad' }, spec: { containers: [{ name: 'c', image: 'nginx', imagePullPolicy: 'Maybe' }] } };
    const status = await refused(422, core.createNamespacedPod({ namespace: NS, body }));
    assert.deepEqual(status.details.causes, [
        {
            reason: 'FieldValueNotSupported',
            message: 'Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never"',
            field: 'spec.containers[0].imagePullPolicy',
        },
    ]);
});

check('versions and access', async () => {
    assert.ok((await config.makeApiClient(k8s.VersionApi).getCode()).gitVersion.startsWith('v1.36'));
    const auth = config.makeApiClient(k8s.AuthorizationV1Api);
    const spec = { resourceAttributes: { verb: 'delete', resource: 'nodes' } };
    assert.equal((await auth.createSelfSubjectAccessReview({ body: { spec } })).status.allowed, true);
    const reviews = config.makeApiClient(k8s.AuthenticationV1Api);
    const me = await reviews.createSelfSubjectReview({ body: {} });
    assert.ok(me.status.userInfo.groups.includes('kubeadm:cluster-admins'));
});

let failed = 0;
for (const [name, run] of checks) {
    try {
        await run();
        console.log(`ok ${name}`);
    } catch (e) {
        failed++;
        console.log(`FAILED ${name}\n${e.stack}`);
    }
}
process.exit(failed ? 1 : 0);
