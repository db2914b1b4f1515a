// The seven tutorials of RabbitMQ as amqplib users write them, one after the other; AMQP_URL names the broker.
'use strict';

const assert = require('assert');
const amqp = require('amqplib');

const tick = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(holds) {
  for (let i = 0; i < 500 && !holds(); i++) await tick(10);
  assert(holds());
}

async function collect(channel, queue, options = { noAck: true }) {
  const received = [];
  const { consumerTag } = await channel.consume(queue, (m) => received.push(m), options);
  return { received, bodies: () => received.map((m) => m.content.toString()), consumerTag };
}

async function helloWorld(connection) {
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue('js-hello', { durable: true });
  channel.sendToQueue(queue, Buffer.from('Hello World!'));
  const consumer = await collect(channel, queue);
  await until(() => consumer.received.length === 1);
  assert.deepStrictEqual(consumer.bodies(), ['Hello World!']);
  await channel.deleteQueue(queue);
  await channel.close();
}

async function workQueues(connection) {
  const workers = [await connection.createChannel(), await connection.createChannel()];
  const { queue } = await workers[0].assertQueue('js-tasks', { durable: true });
  const taken = [];
  for (const worker of workers) {
    await worker.prefetch(1);
    const consumer = await collect(worker, queue, {});
    taken.push(consumer.received);
  }
  for (let i = 0; i < 3; i++) workers[0].sendToQueue(queue, Buffer.from(`${i}`), { persistent: true });
  await until(() => taken[0].length === 1 && taken[1].length === 1); // fair dispatch
  await tick(50);
  assert.strictEqual(taken[0].length + taken[1].length, 2);
  workers[0].ack(taken[0][0]);
  await until(() => taken[0].length === 2);
  await workers[1].close(); // its task comes back to the other
  workers[0].ack(taken[0][1]);
  await until(() => taken[0].length === 3);
  assert(taken[0][2].fields.redelivered);
  workers[0].ack(taken[0][2]);
  await workers[0].deleteQueue(queue);
  await workers[0].close();
}

async function publishSubscribe(connection) {
  const channel = await connection.createChannel();
  await channel.assertExchange('js-logs', 'fanout', { durable: false });
  const consumers = [];
  for (let i = 0; i < 2; i++) {
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(queue, 'js-logs', '');
    consumers.push(await collect(channel, queue));
  }
  channel.publish('js-logs', '', Buffer.from('info: hello'));
  await until(() => consumers.every((c) => c.received.length === 1));
  await channel.deleteExchange('js-logs');
  await channel.close();
}

async function routing(connection, type, bindings, sent, wanted) {
  const channel = await connection.createChannel();
  const exchange = `js-${type}`;
  await channel.assertExchange(exchange, type, { durable: false });
  const { queue } = await channel.assertQueue('', { exclusive: true });
  for (const key of bindings) await channel.bindQueue(queue, exchange, key);
  const consumer = await collect(channel, queue);
  for (const key of sent) channel.publish(exchange, key, Buffer.from(key));
  await until(() => consumer.received.length === wanted.length);
  assert.deepStrictEqual(consumer.bodies(), wanted);
  await channel.deleteExchange(exchange);
  await channel.close();
}

async function rpc(connection) {
  const server = await connection.createChannel();
  const { queue } = await server.assertQueue('js-rpc', { durable: false });
  server.prefetch(1);
  const fibonacci = (n) => (n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2));
  await server.consume(queue, (message) => {
    if (message === null) return; // the queue is deleted
    const { replyTo, correlationId } = message.properties;
    server.sendToQueue(replyTo, Buffer.from(`${fibonacci(parseInt(message.content))}`), { correlationId });
    server.ack(message);
  });
  const client = await connection.createChannel();
  for (const replyTo of [(await client.assertQueue('', { exclusive: true })).queue, 'amq.rabbitmq.reply-to']) {
    const consumer = await collect(client, replyTo);
    client.sendToQueue(queue, Buffer.from('20'), { correlationId: 'fib', replyTo });
    await until(() => consumer.received.length === 1);
    assert.deepStrictEqual(consumer.bodies(), ['6765']);
    assert.strictEqual(consumer.received[0].properties.correlationId, 'fib');
  }
  await client.close();
  await server.deleteQueue(queue);
  await server.close();
}

async function publisherConfirms(connection) {
  const channel = await connection.createConfirmChannel();
  const { queue } = await channel.assertQueue('', { exclusive: true });
  for (let i = 0; i < 100; i++) channel.sendToQueue(queue, Buffer.from(`${i}`));
  await channel.waitForConfirms();
  let confirmed = 0;
  for (let i = 0; i < 100; i++) {
    channel.publish('', queue, Buffer.from(`${i}`), {}, (error) => { assert(!error); confirmed++; });
  }
  await until(() => confirmed === 100);
  assert.strictEqual((await channel.checkQueue(queue)).messageCount, 200);
  await channel.close();
}

async function main() {
  const connection = await amqp.connect(process.env.AMQP_URL);
  await helloWorld(connection);
  await workQueues(connection);
  await publishSubscribe(connection);
  await routing(connection, 'direct', ['warning', 'error'], ['info', 'warning', 'error'], ['warning', 'error']);
  await routing(connection, 'topic', ['kern.*', '#.critical'], ['kern.info', 'app.info', 'app.db.critical'],
    ['kern.info', 'app.db.critical']);
  await rpc(connection);
  await publisherConfirms(connection);
  await connection.close();
  console.log('all seven');
}

main().catch((error) => { console.error(error); process.exit(1); });
