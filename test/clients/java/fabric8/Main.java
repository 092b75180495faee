import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * fabric8's client as operators use it, started by test/tests/clients; it prints lines of JSON.
 *
 * <pre>
 *   java-fabric8 KUBECONFIG NAMESPACE POD   watch a ConfigMap from its creation to its deletion; run a command in a pod
 *   java-fabric8 --version                  print the version
 * </pre>
 */
public final class Main {
    private static final long PATIENCE_SECONDS = 60;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            System.out.println(version());
            return;
        }
        Config config = Config.fromKubeconfig(new File(arguments[0]));
        try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
            follow(client, arguments[1]);
            command(client, arguments[1], arguments[2]);
        }
    }

    /** Checks that a watch and an informer deliver each change of a ConfigMap. */
    private static void follow(KubernetesClient client, String namespace) throws Exception {
        var maps = client.configMaps().inNamespace(namespace);
        int before = maps.list().getItems().size();
        BlockingQueue<String> watched = new LinkedBlockingQueue<>();
        BlockingQueue<String> informed = new LinkedBlockingQueue<>();
        Watcher<ConfigMap> watcher = new Watcher<>() {
            @Override
            public void eventReceived(Action action, ConfigMap map) {
                watched.add(action + " " + value(map));
            }

            @Override
            public void onClose(WatcherException cause) {
                watched.add("failed: " + cause);
            }
        };
        ResourceEventHandler<ConfigMap> handler = new ResourceEventHandler<>() {
            @Override
            public void onAdd(ConfigMap map) {
                informed.add("ADDED " + value(map));
            }

            @Override
            public void onUpdate(ConfigMap old, ConfigMap map) {
                informed.add("MODIFIED " + value(map));
            }

            @Override
            public void onDelete(ConfigMap map, boolean isUnknown) {
                informed.add("DELETED " + value(map));
            }
        };
        var one = maps.withName("from-fabric8");
        try (var watch = one.watch(watcher); var informer = one.inform(handler)) {
            maps.resource(map(namespace, "created")).create();
            expectEvent(watched, informed, "ADDED created");
            one.patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\":{\"value\":\"patched\"}}");
            expectEvent(watched, informed, "MODIFIED patched");
            client.resource(map(namespace, "applied")).fieldManager("fabric8").forceConflicts().serverSideApply();
            expectEvent(watched, informed, "MODIFIED applied");
            one.delete();
            expectEvent(watched, informed, "DELETED applied");
        }
        int after = maps.list().getItems().size();
        System.out.printf("{\"followed\":4,\"left\":%d}%n", after - before);
    }

    private static ConfigMap map(String namespace, String value) {
        return new ConfigMapBuilder().withNewMetadata().withName("from-fabric8").withNamespace(namespace).endMetadata()
            .withData(Map.of("value", value)).build();
    }

    private static String value(ConfigMap map) {
        return map.getData() == null ? "nothing" : map.getData().get("value");
    }

    private static void expectEvent(BlockingQueue<String> watched, BlockingQueue<String> informed, String expected)
        throws InterruptedException {
        for (BlockingQueue<String> queue : List.of(watched, informed)) {
            String event = queue.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (!expected.equals(event)) {
                throw new IllegalStateException("expected " + expected + ", not " + event);
            }
        }
    }

    private static void command(KubernetesClient client, String namespace, String name) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        Pod pod = client.pods().inNamespace(namespace).withName(name).get();
        try (ExecWatch exec = client.pods().resource(pod).writingOutput(out).exec("echo", "hello")) {
            int code = exec.exitCode().get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            System.out.printf("{\"command\":\"%s\",\"code\":%d}%n", out.toString().trim(), code);
        }
    }

    private static String version() throws Exception {
        Properties properties = new Properties();
        String file = "/META-INF/maven/io.fabric8/kubernetes-client/pom.properties";
        try (var in = Main.class.getResourceAsStream(file)) {
            properties.load(in);
        }
        return properties.getProperty("version");
    }
}
