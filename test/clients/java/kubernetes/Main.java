import com.google.gson.reflect.TypeToken;
import io.kubernetes.client.Exec;
import io.kubernetes.client.custom.V1Patch;
import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.ClientBuilder;
import io.kubernetes.client.util.KubeConfig;
import io.kubernetes.client.util.PatchUtils;
import io.kubernetes.client.util.Watch;
import java.io.FileReader;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * The official client as operators use it, started by test/tests/clients; it prints lines of JSON.
 *
 * <pre>
 *   java-kubernetes KUBECONFIG NAMESPACE POD   watch a ConfigMap from its creation to its deletion; run a command in a pod
 *   java-kubernetes --version                  print the version
 * </pre>
 */
public final class Main {
    private static final long PATIENCE_SECONDS = 60;
    private static final String NAME = "from-official";

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            System.out.println(version());
            return;
        }
        ApiClient client;
        try (FileReader file = new FileReader(arguments[0])) {
            client = ClientBuilder.kubeconfig(KubeConfig.loadKubeConfig(file)).build();
        }
        // A watch lasts longer than any read timeout.
        client.setReadTimeout(0);
        follow(client, arguments[1]);
        command(client, arguments[1], arguments[2]);
        // Its threads would run for a while.
        System.exit(0);
    }

    /** Checks that a watch and an informer deliver each change of a ConfigMap. */
    private static void follow(ApiClient client, String namespace) throws Exception {
        CoreV1Api api = new CoreV1Api(client);
        V1ConfigMapList before = api.listNamespacedConfigMap(namespace).execute();
        BlockingQueue<String> informed = new LinkedBlockingQueue<>();
        SharedInformerFactory factory = new SharedInformerFactory(client);
        inform(factory, api, namespace, informed);
        try (Watch<V1ConfigMap> watch = Watch.createWatch(
            client,
            api.listNamespacedConfigMap(namespace).fieldSelector("metadata.name=" + NAME)
                .resourceVersion(before.getMetadata().getResourceVersion()).watch(true).buildCall(null),
            new TypeToken<Watch.Response<V1ConfigMap>>() {}.getType())) {
            V1ConfigMap made = new V1ConfigMap().metadata(new V1ObjectMeta().name(NAME)).data(Map.of("value", "created"));
            api.createNamespacedConfigMap(namespace, made).execute();
            expectEvent(watch, informed, "ADDED created");
            patch(client, api, namespace, V1Patch.PATCH_FORMAT_JSON_MERGE_PATCH, "{\"data\":{\"value\":\"patched\"}}");
            expectEvent(watch, informed, "MODIFIED patched");
            String applied = "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"" + NAME
                + "\"},\"data\":{\"value\":\"applied\"}}";
            patch(client, api, namespace, V1Patch.PATCH_FORMAT_APPLY_YAML, applied);
            expectEvent(watch, informed, "MODIFIED applied");
            api.deleteNamespacedConfigMap(NAME, namespace).execute();
            expectEvent(watch, informed, "DELETED applied");
        } finally {
            factory.stopAllRegisteredInformers();
        }
        int after = api.listNamespacedConfigMap(namespace).execute().getItems().size();
        System.out.printf("{\"followed\":4,\"left\":%d}%n", after - before.getItems().size());
    }

    private static void inform(
        SharedInformerFactory factory, CoreV1Api api, String namespace, BlockingQueue<String> informed)
        throws InterruptedException {
        var informer = factory.sharedIndexInformerFor(
            (CallGeneratorParams params) -> api.listNamespacedConfigMap(namespace)
                .fieldSelector("metadata.name=" + NAME).resourceVersion(params.resourceVersion)
                .timeoutSeconds(params.timeoutSeconds).watch(params.watch).buildCall(null),
            V1ConfigMap.class, V1ConfigMapList.class);
        informer.addEventHandler(new ResourceEventHandler<>() {
            @Override
            public void onAdd(V1ConfigMap map) {
                informed.add("ADDED " + value(map));
            }

            @Override
            public void onUpdate(V1ConfigMap old, V1ConfigMap map) {
                informed.add("MODIFIED " + value(map));
            }

            @Override
            public void onDelete(V1ConfigMap map, boolean isUnknown) {
                informed.add("DELETED " + value(map));
            }
        });
        factory.startAllRegisteredInformers();
        for (long left = PATIENCE_SECONDS * 10; !informer.hasSynced(); left--) {
            if (left == 0) {
                throw new IllegalStateException("the informer has listed nothing");
            }
            Thread.sleep(100);
        }
    }

    private static void patch(ApiClient client, CoreV1Api api, String namespace, String format, String body)
        throws Exception {
        var request = api.patchNamespacedConfigMap(NAME, namespace, new V1Patch(body)).fieldManager("official");
        boolean isApply = format.equals(V1Patch.PATCH_FORMAT_APPLY_YAML);
        PatchUtils.patch(V1ConfigMap.class, () -> (isApply ? request.force(true) : request).buildCall(null), format, client);
    }

    private static String value(V1ConfigMap map) {
        return map.getData() == null ? "nothing" : map.getData().get("value");
    }

    private static void expectEvent(Watch<V1ConfigMap> watch, BlockingQueue<String> informed, String expected) throws Exception {
        Watch.Response<V1ConfigMap> event = watch.next();
        String watched = event.type + " " + value(event.object);
        String told = informed.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
        if (!expected.equals(watched) || !expected.equals(told)) {
            throw new IllegalStateException("expected " + expected + ", not " + watched + " and " + told);
        }
    }

    private static void command(ApiClient client, String namespace, String pod) throws Exception {
        Process process = new Exec(client).exec(namespace, pod, new String[] {"echo", "hello"}, false, false);
        String said = new String(process.getInputStream().readAllBytes()).trim();
        process.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS);
        System.out.printf("{\"command\":\"%s\",\"code\":%d}%n", said, process.exitValue());
    }

    private static String version() throws Exception {
        Properties properties = new Properties();
        String file = "/META-INF/maven/io.kubernetes/client-java/pom.properties";
        try (var in = Main.class.getResourceAsStream(file)) {
            properties.load(in);
        }
        return properties.getProperty("version");
    }
}
