import com.rabbitmq.client.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;

/** What RabbitMQ's tutorials do, with the Java client; AMQP_URL names the broker. */
public class Tutorials {
    static final long WAIT_S = 10;

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(Delivery delivery) {
        return new String(delivery.getBody(), StandardCharsets.UTF_8);
    }

    static void check(Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) throw new AssertionError(found + " instead of " + wanted);
    }

    static BlockingQueue<Delivery> collect(Channel channel, String queue, boolean autoAck) throws Exception {
        BlockingQueue<Delivery> received = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, autoAck, (tag, delivery) -> received.add(delivery), tag -> {});
        return received;
    }

    static Delivery next(BlockingQueue<Delivery> received) throws Exception {
        Delivery delivery = received.poll(WAIT_S, TimeUnit.SECONDS);
        if (delivery == null) throw new AssertionError("nothing came");
        return delivery;
    }

    static void workQueue(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        channel.queueDeclare("java-tasks", true, false, false, null);
        channel.basicPublish("", "java-tasks", MessageProperties.PERSISTENT_TEXT_PLAIN, bytes("one"));
        channel.basicPublish("", "java-tasks", MessageProperties.PERSISTENT_TEXT_PLAIN, bytes("two"));
        channel.basicQos(1);
        BlockingQueue<Delivery> received = collect(channel, "java-tasks", false);
        for (String wanted : List.of("one", "two")) {
            Delivery delivery = next(received);
            check(wanted, text(delivery));
            check(0, received.size());
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }
        channel.queueDelete("java-tasks");
        channel.close();
    }

    static void exchange(Connection connection, BuiltinExchangeType type, List<String> bindings,
            List<String> sent, List<String> wanted) throws Exception {
        Channel channel = connection.createChannel();
        String name = "java-" + type.getType();
        channel.exchangeDeclare(name, type);
        String queue = channel.queueDeclare().getQueue();
        for (String key : bindings) channel.queueBind(queue, name, key);
        BlockingQueue<Delivery> received = collect(channel, queue, true);
        for (String key : sent) channel.basicPublish(name, key, null, bytes(key));
        for (String key : wanted) check(key, text(next(received)));
        channel.exchangeDelete(name);
        channel.close();
    }

    static void headers(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        channel.exchangeDeclare("java-headers", BuiltinExchangeType.HEADERS);
        String queue = channel.queueDeclare().getQueue();
        channel.queueBind(queue, "java-headers", "", Map.of("x-match", "all", "kind", "pdf", "pages", 3));
        BlockingQueue<Delivery> received = collect(channel, queue, true);
        for (int pages = 1; pages <= 3; pages++) {
            AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                    .headers(Map.of("kind", "pdf", "pages", pages)).build();
            channel.basicPublish("java-headers", "", properties, bytes("" + pages));
        }
        check("3", text(next(received)));
        channel.exchangeDelete("java-headers");
        channel.close();
    }

    static void rpc(Connection connection) throws Exception {
        Channel server = connection.createChannel();
        server.queueDeclare("java-rpc", false, false, false, null);
        server.basicConsume("java-rpc", true, (tag, request) -> {
            AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                    .correlationId(request.getProperties().getCorrelationId()).build();
            server.basicPublish("", request.getProperties().getReplyTo(), properties,
                    bytes(text(request).toUpperCase()));
        }, tag -> {});
        Channel channel = connection.createChannel();
        RpcClient client = new RpcClient(new RpcClientParams().channel(channel).exchange("")
                .routingKey("java-rpc").timeout((int) WAIT_S * 1000)); // over amq.rabbitmq.reply-to
        check("HELLO", client.stringCall("hello"));
        client.close();
        channel.close();
        server.queueDelete("java-rpc");
        server.close();
    }

    static void confirms(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        channel.confirmSelect();
        for (int number = 0; number < 100; number++) channel.basicPublish("", queue, null, bytes("" + number));
        channel.waitForConfirmsOrDie(WAIT_S * 1000);
        check(100L, channel.messageCount(queue));
        channel.close();
    }

    static void transactions(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        channel.txSelect();
        channel.basicPublish("", queue, null, bytes("dropped"));
        channel.txRollback();
        channel.basicPublish("", queue, null, bytes("kept"));
        channel.txCommit();
        check("kept", new String(channel.basicGet(queue, false).getBody(), StandardCharsets.UTF_8));
        check(null, channel.basicGet(queue, false));
        channel.close();
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        try (Connection connection = factory.newConnection()) {
            workQueue(connection);
            exchange(connection, BuiltinExchangeType.FANOUT, List.of(""), List.of("a", "b"), List.of("a", "b"));
            exchange(connection, BuiltinExchangeType.DIRECT, List.of("warning", "error"),
                    List.of("info", "warning", "error"), List.of("warning", "error"));
            exchange(connection, BuiltinExchangeType.TOPIC, List.of("kern.*", "#.critical"),
                    List.of("kern.info", "app.info", "app.db.critical"), List.of("kern.info", "app.db.critical"));
            headers(connection);
            rpc(connection);
            confirms(connection);
            transactions(connection);
        }
        System.out.println("all of them");
    }
}
