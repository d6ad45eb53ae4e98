// Custom resources with the npm package @kubernetes/client-node: the typed-less API, the object client, informers.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const NS = 'javascript';
const at = { group: 'python.coracle.dev', version: 'v1', namespace: NS, plural: 'bells' };
const config = new k8s.KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(k8s.CustomObjectsApi);
const bell = (name, rings, labels) => ({ apiVersion: 'python.coracle.dev/v1', kind: 'Bell', metadata: { name, labels }, spec: { rings } });
const create = (name, rings, labels) => api.createNamespacedCustomObject({ ...at, body: bell(name, rings, labels) });
const merge = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
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

check('create, read, replace, patch, status, delete', async () => {
    const made = await create('one', 1);
    assert.equal(made.metadata.generation, 1);
    made.spec.rings = 2;
    const replaced = await api.replaceNamespacedCustomObject({ ...at, name: 'one', body: made });
    assert.equal(replaced.metadata.generation, 2);
    assert.equal((await refused(409, api.replaceNamespacedCustomObject({ ...at, name: 'one', body: made }))).reason, 'Conflict');
    const patched = await api.patchNamespacedCustomObject({ ...at, name: 'one', body: { spec: { rings: 3 } } }, merge);
    assert.equal(patched.spec.rings, 3);
    const status = await api.patchNamespacedCustomObjectStatus({ ...at, name: 'one', body: { status: { heard: 3 } } }, merge);
    assert.deepEqual([status.status.heard, status.metadata.generation], [3, 3]);
    const bad = await refused(422, api.patchNamespacedCustomObject({ ...at, name: 'one', body: { spec: { rings: -1 } } }, merge));
    assert.deepEqual(bad.details.causes.map((c) => [c.reason, c.field]), [['FieldValueInvalid', 'spec.rings']]);
    assert.equal((await api.deleteNamespacedCustomObject({ ...at, name: 'one' })).status, 'Success');
    await refused(404, api.getNamespacedCustomObject({ ...at, name: 'one' }));
});

check('the object client finds the resource by discovery', async () => {
    const client = k8s.KubernetesObjectApi.makeApiClient(config);
    const spec = { ...bell('object', 1), metadata: { name: 'object', namespace: NS } };
    assert.equal((await client.create(spec)).spec.rings, 1);
    assert.equal((await client.patch({ ...spec, spec: { rings: 5 } }, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch)).spec.rings, 5);
    assert.equal((await client.list('python.coracle.dev/v1', 'Bell', NS)).items.length, 1);
    assert.equal((await client.delete(spec)).status, 'Success');
});

check('an informer sees everything, a second one what it selects', async () => {
    const seen = { all: [], some: [] };
    const path = `/apis/python.coracle.dev/v1/namespaces/${NS}/bells`;
    const start = async (which, labelSelector) => {
        const list = () => api.listNamespacedCustomObject({ ...at, labelSelector });
        const informer = k8s.makeInformer(config, path, list, labelSelector);
        for (const event of ['add', 'update', 'delete']) informer.on(event, (o) => seen[which].push(`${event} ${o.metadata.name} ${o.spec.rings}`));
        informer.on('error', (e) => e.name === 'AbortError' || seen[which].push(`error ${e}`));
        await informer.start();
        return informer;
    };
    await create('first', 1, { size: 'big' });
    const informers = [await start('all'), await start('some', 'size=big')];
    await until('the first', () => seen.all.length === 1 && seen.some.length === 1);
    await create('second', 2, { size: 'small' });
    await api.patchNamespacedCustomObject({ ...at, name: 'first', body: { spec: { rings: 4 } } }, merge);
    await api.patchNamespacedCustomObject({ ...at, name: 'first', body: { metadata: { labels: { size: 'small' } } } }, merge);
    await api.deleteNamespacedCustomObject({ ...at, name: 'second' });
    await until('all events', () => seen.all.length === 5 && seen.some.length === 3);
    assert.deepEqual(seen.all, ['add first 1', 'add second 2', 'update first 4', 'update first 4', 'delete second 2']);
    assert.deepEqual(seen.some, ['add first 1', 'update first 4', 'delete first 4']);
    assert.equal(informers[0].get('first', NS).spec.rings, 4);
    for (const informer of informers) await informer.stop();
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
