// KafkaJS, driven by JSON lines: node driver.js HOST:PORT
'use strict'

const readline = require('node:readline')
const { Kafka, logLevel, Partitioners } = require('kafkajs')
const { registerCodecs, types } = require('./codecs')
const { Reader } = require('./reader')
const { outgoing } = require('./records')

// KafkaJS makes one batch of all that a send has for a partition, so the sender has to divide.
const SEND_BYTES = 900_000

// A reader whose broker died may join again as another member, and the group then waits for the
// session of the member that is gone.
const LONE_SESSION_MS = 6_000

const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 8 },
})
const admin = kafka.admin()
const readers = []
const producers = []

function* divided(messages, sendBytes) {
  let part = []
  let size = 0
  for (const message of messages) {
    const length = message.value === null ? 0 : message.value.length
    if (part.length && size + length > sendBytes) {
      yield part
      part = []
      size = 0
    }
    part.push(message)
    size += length
  }
  if (part.length) yield part
}

async function openProducer({ topic, codec, acks, idempotent, options }) {
  const { send_bytes: sendBytes = SEND_BYTES, ...rest } = options
  const producer = kafka.producer({
    idempotent,
    createPartitioner: Partitioners.DefaultPartitioner,
    ...rest,
  })
  await producer.connect()
  const about = { topic, acks: acks === 'all' ? -1 : acks, compression: types[codec] }
  return producers.push({ producer, about, sendBytes, offsets: [] }) - 1
}

async function send({ producer: number, records }) {
  const { producer, about, sendBytes, offsets } = producers[number]
  for (const messages of divided(records.map(outgoing), sendBytes)) {
    const answers = await producer.send({ ...about, messages })
    if (about.acks === 0) continue
    const next = new Map(answers.map(row => [row.partition, Number(row.baseOffset)]))
    for (const { partition } of messages) {
      offsets.push(next.get(partition))
      next.set(partition, next.get(partition) + 1)
    }
  }
}

async function finish({ producer: number }) {
  await producers[number].producer.disconnect()
  return producers[number].offsets
}

async function member(call) {
  const reader = new Reader(kafka, admin, call)
  await reader.start()
  return readers.push(reader) - 1
}

// KafkaJS reads in groups only: a reader is the one member of a group that nobody else knows.
async function reader({ topic, partitions, offset, options }) {
  const { isolation_level: isolation, ...rest } = options
  const number = await member({
    group: `kafkajs-reader-${readers.length}`,
    topic,
    session_ms: LONE_SESSION_MS,
    options: { ...rest, readUncommitted: isolation !== 'read_committed' },
  })
  const made = readers[number]
  made.alone = true
  await made.joined
  for (const partition of partitions) made.seek(partition, offset)
  const others = made.partitions.filter(each => !partitions.includes(each))
  if (others.length) made.pause(others)
  return number
}

async function create({ topic, partitions, configs }) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  const topics = [{ topic, numPartitions: partitions, configEntries }]
  // KafkaJS says so without an error.
  if (!(await admin.createTopics({ topics }))) throw new Error(`there is a topic ${topic} already`)
}

async function groupOffset({ group, topic, partition }) {
  const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  const row = found.partitions.find(each => each.partition === partition)
  return row === undefined || row.offset === '-1' ? null : [Number(row.offset), row.metadata || '']
}

async function close(reader) {
  const ended = reader.consumer.disconnect()
  // KafkaJS first waits for its last fetch; nobody waits for the group of a lone reader.
  if (reader.alone) ended.catch(() => {})
  else await ended
}

// Instances of the long type and of buffers in what KafkaJS returns, as JSON can carry them.
function plain(value) {
  if (Buffer.isBuffer(value)) return value.toString('base64')
  if (Array.isArray(value)) return value.map(plain)
  if (value && typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]))
  }
  return value
}

const calls = {
  create,
  delete: ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  producer: openProducer,
  send,
  finish,
  reader,
  member,
  poll: ({ wait_ms }, reader) => reader.poll(wait_ms),
  assigned: (_, reader) => reader.partitions,
  seek: ({ partition, offset }, reader) => reader.seek(partition, offset),
  pause: ({ partitions }, reader) => reader.pause(partitions),
  resume: ({ partitions }, reader) => reader.resume(partitions),
  position: ({ partition }, reader) => reader.positions.get(partition),
  commit: (_, reader) => reader.commit(),
  commit_async: (_, reader) => void reader.commit().catch(() => {}),
  commit_offset: ({ partition, offset, metadata }, reader) =>
    reader.commitOffset(partition, offset, metadata),
  committed: ({ partition }, { group, topic }) => groupOffset({ group, topic, partition }),
  group_offset: groupOffset,
  offset_at: ({ partition, timestamp_ms }, reader) => reader.offsetAt(partition, timestamp_ms),
  bounds: ({ partition }, reader) => reader.bounds(partition),
  close: (_, reader) => close(reader),
  // Any function of the admin client: its own name and its own argument.
  admin: async ({ name, argument }) => plain(await admin[name](argument)),
}

async function answer(line) {
  const request = JSON.parse(line)
  try {
    const result = await calls[request.call](request, readers[request.reader])
    return { result: result === undefined ? null : result }
  } catch (error) {
    const inner = [...(error.groups || []), ...(error.partitions || [])].map(each => each.error)
    const parts = [error, error.cause, ...(error.errors || []), ...inner]
      .filter(each => each)
      .map(each => `${each.name} ${each.type || ''} ${each.message}`)
    return { error: parts.join('; ') }
  }
}

async function main() {
  await registerCodecs()
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n')
  }
  process.exit(0)
}

main()
