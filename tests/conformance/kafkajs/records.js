// Records between KafkaJS and the JSON lines of the driver, where bytes are base64.
'use strict'

const LOG_APPEND_TIME = 1

const text = buffer => (buffer === null || buffer === undefined ? null : buffer.toString('base64'))
const data = base64 => (base64 === null ? null : Buffer.from(base64, 'base64'))

// KafkaJS has an object for headers; a name that comes twice has a list.
function headersOut(pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    const known = Object.hasOwn(headers, name) ? [headers[name]].flat() : []
    headers[name] = known.length ? [...known, data(value)] : data(value)
  }
  return headers
}

function headersIn(headers) {
  return Object.entries(headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map(each => [name, text(each)])
  )
}

function outgoing(record) {
  return {
    partition: record.partition,
    key: data(record.key),
    value: data(record.value),
    headers: headersOut(record.headers),
    timestamp: record.timestamp_ms === null ? undefined : String(record.timestamp_ms),
  }
}

function incoming(partition, message) {
  return {
    partition,
    offset: Number(message.offset),
    key: text(message.key),
    value: text(message.value),
    headers: headersIn(message.headers),
    timestamp_ms: Number(message.timestamp),
    log_append_time: message.batchContext.timestampType === LOG_APPEND_TIME,
  }
}

module.exports = { outgoing, incoming }
