// The codecs that KafkaJS leaves to plug-ins, from packages that need no compiler to install.
'use strict'

const { CompressionTypes, CompressionCodecs } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4js')
const { ZstdCodec } = require('zstd-codec')

function lz4Codec() {
  return {
    compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
  }
}

// Frames of other clients do not say how long their content is, so they are read as streams.
function zstdCodec(streaming) {
  return () => ({
    compress: async encoder => Buffer.from(streaming.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(streaming.decompress(buffer)),
  })
}

async function registerCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
  CompressionCodecs[CompressionTypes.LZ4] = lz4Codec
  const zstd = await new Promise(resolve => ZstdCodec.run(resolve))
  CompressionCodecs[CompressionTypes.ZSTD] = zstdCodec(new zstd.Streaming())
}

const types = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

module.exports = { registerCodecs, types }
