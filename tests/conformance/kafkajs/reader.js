// A KafkaJS consumer that is polled. KafkaJS pushes, so what it pushed waits here until it is asked for.
'use strict'

const { incoming } = require('./records')

const STEP_MS = 5

const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

class Reader {
  constructor(kafka, admin, { group, topic, session_ms, options: { autoCommit = false, ...options } }) {
    this.autoCommit = autoCommit
    this.admin = admin
    this.group = group
    this.topic = topic
    this.waiting = []
    this.positions = new Map()
    this.partitions = []
    this.failure = null
    this.joined = new Promise(resolve => (this.onJoined = resolve))
    this.consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: session_ms,
      heartbeatInterval: 200,
      maxWaitTimeInMs: 200,
      ...options,
    })
    this.consumer.on('consumer.group_join', ({ payload }) => this.take(payload.memberAssignment))
    this.consumer.on('consumer.crash', ({ payload }) => {
      if (!payload.restart) this.failure = payload.error
    })
  }

  // A new generation begins at the committed offsets: what was fetched in the old one is void.
  take(assignment) {
    this.waiting = []
    this.positions.clear()
    this.partitions = assignment[this.topic] || []
    this.onJoined()
  }

  async start() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: this.autoCommit,
      eachBatch: async ({ batch, isStale }) => {
        if (isStale()) return
        for (const message of batch.messages) {
          this.waiting.push(incoming(batch.partition, message))
        }
      },
    })
  }

  async poll(waitMs) {
    const endsAt = Date.now() + waitMs
    while (this.waiting.length === 0 && Date.now() < endsAt && !this.failure) await pause(STEP_MS)
    if (this.failure) throw this.failure
    const got = this.waiting
    this.waiting = []
    for (const row of got) this.positions.set(row.partition, row.offset + 1)
    return got
  }

  seek(partition, offset) {
    this.waiting = this.waiting.filter(row => row.partition !== partition)
    this.positions.set(partition, offset)
    this.consumer.seek({ topic: this.topic, partition, offset: String(offset) })
  }

  pause(partitions) {
    this.consumer.pause([{ topic: this.topic, partitions }])
  }

  resume(partitions) {
    this.consumer.resume([{ topic: this.topic, partitions }])
  }

  async commit() {
    const places = [...this.positions].map(([partition, offset]) => ({
      topic: this.topic,
      partition,
      offset: String(offset),
    }))
    await this.consumer.commitOffsets(places)
  }

  async commitOffset(partition, offset, metadata) {
    const place = { topic: this.topic, partition, offset: String(offset), metadata }
    await this.consumer.commitOffsets([place])
  }

  async offsetAt(partition, timestampMs) {
    const rows = await this.admin.fetchTopicOffsetsByTimestamp(this.topic, timestampMs)
    const offset = Number(rows.find(row => row.partition === partition).offset)
    return offset < 0 ? null : offset
  }

  async bounds(partition) {
    const rows = await this.admin.fetchTopicOffsets(this.topic)
    const row = rows.find(each => each.partition === partition)
    return [Number(row.low), Number(row.high)]
  }
}

module.exports = { Reader }
