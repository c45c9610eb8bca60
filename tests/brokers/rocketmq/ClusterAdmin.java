import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.lite.LiteUtil;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.body.AclInfo;
import org.apache.rocketmq.remoting.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.UserInfo;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Administers a test cluster from one JVM that stays up: the stock command line tool takes seconds for every
 * command, most of it for starting Java.
 *
 * <p>Requests come on standard input, one a line: {@code ID TAB VERB TAB ARGUMENT...}. Each gets one answer on
 * standard output, in any order: {@code @ID TAB ok|error TAB TEXT}. Lines without the {@code @} are chatter of the
 * libraries. Inside a field, {@code \t}, {@code \n} and {@code \\} stand for themselves. Ends with its input.
 */
public final class ClusterAdmin {
    /** Long enough for a loaded machine, short enough to name the culprit before the caller's own deadline. */
    private static final long CALL_MILLIS = 10_000;
    private static final long ROUTE_POLL_MILLIS = 20;
    /** Requests worked on at the same time; each mostly waits for a broker. */
    private static final int WORKERS = 4;

    /** Some libraries put a whole document into their messages. */
    private static final int CAUSE_CHARACTERS = 500;

    private final DefaultMQAdminExt admin;

    private ClusterAdmin(DefaultMQAdminExt admin) {
        this.admin = admin;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ClusterAdmin self = new ClusterAdmin(connect(arguments[0]));
        answers.println("@ready");
        ExecutorService workers = Executors.newFixedThreadPool(WORKERS);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] fields = line.split("\t", -1);
            workers.execute(() -> answers.println(self.answer(fields)));
        }
        workers.shutdown();
        workers.awaitTermination(CALL_MILLIS, TimeUnit.MILLISECONDS);
        // The client library keeps threads of its own that would hold the JVM.
        Runtime.getRuntime().halt(0);
    }

    private static DefaultMQAdminExt connect(String nameServer) throws MQClientException {
        String accessKey = System.getenv("TIDEGATE_TEST_ACCESS_KEY");
        String secretKey = System.getenv("TIDEGATE_TEST_SECRET_KEY");
        RPCHook hook = accessKey == null ? null : new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
        DefaultMQAdminExt admin = new DefaultMQAdminExt(hook, CALL_MILLIS);
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("tidegate-cluster-admin");
        admin.start();
        return admin;
    }

    private String answer(String[] fields) {
        String verdict;
        String text;
        try {
            List<String> arguments = new ArrayList<>();
            for (String field : Arrays.asList(fields).subList(2, fields.length)) {
                arguments.add(unescape(field));
            }
            text = carryOut(fields[1], arguments);
            verdict = "ok";
        } catch (Exception failure) {
            text = describe(failure);
            verdict = "error";
        }
        return "@" + fields[0] + "\t" + verdict + "\t" + escape(text);
    }

    private String carryOut(String verb, List<String> arguments) throws Exception {
        switch (verb) {
            case "brokers":
                return String.join(",", brokers().keySet());
            case "create-topic":
                createTopic(arguments.get(0), arguments.get(1), Integer.parseInt(arguments.get(2)));
                return "";
            case "create-group":
                createGroup(
                        arguments.get(0), Integer.parseInt(arguments.get(1)),
                        Boolean.parseBoolean(arguments.get(2)), attributes(arguments.subList(3, arguments.size())));
                return "";
            case "lite-lag":
                return Long.toString(liteLag(arguments.get(0), arguments.get(1)));
            case "lag":
                return Long.toString(lag(arguments.get(0), arguments.get(1)));
            case "stored":
                return Long.toString(stored(arguments.get(0)));
            case "create-user":
                createUser(arguments.get(0), arguments.get(1));
                return "";
            case "create-acl":
                createAcl(arguments.get(0), list(arguments.get(1)), list(arguments.get(2)));
                return "";
            default:
                throw new IllegalArgumentException("unknown request " + verb);
        }
    }

    /** Master addresses by broker name. */
    private Map<String, String> brokers() throws Exception {
        Map<String, String> addresses = new HashMap<>();
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            addresses.put(broker.getBrokerName(), broker.selectBrokerAddr());
        }
        return addresses;
    }

    /** Returns once the name server routes to every broker: a proxy that asks too early remembers the "no". */
    private void createTopic(String name, String type, int queues) throws Exception {
        Map<String, String> brokers = brokers();
        TopicConfig config = new TopicConfig(name, queues, queues);
        config.setAttributes(Collections.singletonMap("+message.type", type));
        for (String address : brokers.values()) {
            admin.createAndUpdateTopicConfig(address, config);
        }
        long deadline = System.currentTimeMillis() + CALL_MILLIS;
        while (routedBrokers(name) < brokers.size()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("topic " + name + " is created but not routed by the name server");
            }
            Thread.sleep(ROUTE_POLL_MILLIS);
        }
    }

    private int routedBrokers(String topic) throws Exception {
        try {
            return admin.examineTopicRouteInfo(topic).getBrokerDatas().size();
        } catch (MQClientException failure) {
            if (failure.getResponseCode() == ResponseCode.TOPIC_NOT_EXIST) {
                return 0;
            }
            throw failure;
        }
    }

    private void createGroup(String name, int retryMax, boolean orderly, Map<String, String> attributes)
            throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(name);
        config.setRetryMaxTimes(retryMax);
        config.setConsumeMessageOrderly(orderly);
        config.setAttributes(attributes);
        for (String address : brokers().values()) {
            admin.createAndUpdateSubscriptionGroupConfig(address, config);
        }
    }

    /**
     * Messages of all lite topics under {@code topic} that {@code group} has not acknowledged, over all brokers.
     *
     * <p>The broker's own answer for a lite group leaves out lite topics from which nothing was acknowledged yet, so
     * this counts itself: each lite message is in its main topic's queues once, and a group's offset in a lite topic
     * moves with acknowledgements.
     */
    private long liteLag(String group, String topic) throws Exception {
        long open = 0;
        for (TopicOffset offset : admin.examineTopicStats(topic).getOffsetTable().values()) {
            open += offset.getMaxOffset();
        }
        String prefix = LiteUtil.LITE_TOPIC_PREFIX + topic + LiteUtil.SEPARATOR;
        String suffix = "@" + group;
        for (String address : brokers().values()) {
            for (Map.Entry<String, ConcurrentMap<Integer, Long>> entry : consumerOffsets(address).entrySet()) {
                if (entry.getKey().startsWith(prefix) && entry.getKey().endsWith(suffix)) {
                    open -= entry.getValue().getOrDefault(0, 0L);
                }
            }
        }
        return open;
    }

    /** Offsets by queue, by {@code TOPIC@GROUP}, lite topics included: the request by which a slave copies them. */
    private Map<String, ConcurrentMap<Integer, Long>> consumerOffsets(String address) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.GET_ALL_CONSUMER_OFFSET, null);
        RemotingCommand answer = admin.getDefaultMQAdminExtImpl()
                .getMqClientInstance()
                .getMQClientAPIImpl()
                .getRemotingClient()
                .invokeSync(address, request, CALL_MILLIS);
        if (answer.getCode() != ResponseCode.SUCCESS) {
            throw new MQBrokerException(answer.getCode(), answer.getRemark(), address);
        }
        // The broker writes queue numbers as bare names, which is no JSON: the former generation of the library reads it.
        String text = new String(answer.getBody(), StandardCharsets.UTF_8);
        return JSON.parseObject(text, ConsumerOffsetSerializeWrapper.class).getOffsetTable();
    }

    private long lag(String group, String topic) throws Exception {
        try {
            ConsumeStats stats = admin.examineConsumeStats(group, topic);
            return stats.getOffsetTable().values().stream()
                    .mapToLong(offset -> offset.getBrokerOffset() - offset.getConsumerOffset()).sum();
        } catch (MQClientException failure) {
            // Nobody of the group has consumed yet: all that is stored is still to come.
            if (failure.getResponseCode() == ResponseCode.CONSUMER_NOT_ONLINE) {
                return stored(topic);
            }
            throw failure;
        }
    }

    private long stored(String topic) throws Exception {
        try {
            return admin.examineTopicStats(topic).getOffsetTable().values().stream()
                    .mapToLong(offset -> offset.getMaxOffset() - offset.getMinOffset()).sum();
        } catch (MQClientException failure) {
            // A topic of dead letters is made with the first of them.
            if (failure.getResponseCode() == ResponseCode.TOPIC_NOT_EXIST) {
                return 0;
            }
            throw failure;
        }
    }

    private void createUser(String name, String password) throws Exception {
        for (String address : brokers().values()) {
            admin.createUser(address, UserInfo.of(name, password, "Normal"));
        }
    }

    private void createAcl(String subject, List<String> resources, List<String> actions) throws Exception {
        for (String address : brokers().values()) {
            admin.createAcl(address, AclInfo.of(subject, resources, actions, Collections.emptyList(), "Allow"));
        }
    }

    private static Map<String, String> attributes(List<String> pairs) {
        Map<String, String> attributes = new HashMap<>();
        for (String pair : pairs) {
            int at = pair.indexOf('=');
            // A leading plus is how the broker is told to add an attribute.
            attributes.put("+" + pair.substring(0, at), pair.substring(at + 1));
        }
        return attributes;
    }

    private static List<String> list(String text) {
        return Arrays.asList(text.split(","));
    }

    private static String describe(Exception failure) {
        if (failure instanceof MQBrokerException) {
            MQBrokerException refusal = (MQBrokerException) failure;
            return "broker answers " + refusal.getResponseCode() + ": " + refusal.getErrorMessage();
        }
        String text = failure.getClass().getSimpleName() + ": " + failure.getMessage();
        return text.substring(0, Math.min(text.length(), CAUSE_CHARACTERS));
    }

    private static String escape(String text) {
        return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\r", "").replace("\n", "\\n");
    }

    private static String unescape(String text) {
        StringBuilder plain = new StringBuilder();
        for (int at = 0; at < text.length(); at++) {
            char next = text.charAt(at);
            if (next == '\\' && at + 1 < text.length()) {
                at++;
                char escaped = text.charAt(at);
                plain.append(escaped == 't' ? '\t' : escaped == 'n' ? '\n' : escaped);
            } else {
                plain.append(next);
            }
        }
        return plain.toString();
    }
}
