/** Whole numbers in LEB128, which take a fraction of what an array does. */
export class Packed {
  private constructor(readonly bytes: Uint8Array<ArrayBuffer>, readonly count: number) {}

  /** So many numbers at the beginning of some bytes. */
  static first(bytes: Uint8Array<ArrayBuffer>, count: number): Packed {
    let end = 0;
    // The last byte of each number is below 0x80.
    for (let left = count; left > 0 && end < bytes.length;) if (bytes[end++] < 0x80) left--;
    return new Packed(bytes.subarray(0, end), count);
  }

  /** These numbers, followed by others. */
  with(others: Packed): Packed {
    const bytes = new Uint8Array(this.bytes.length + others.bytes.length);
    bytes.set(this.bytes);
    bytes.set(others.bytes, this.bytes.length);
    return new Packed(bytes, this.count + others.count);
  }

  /** Gives one number after the other, each exact up to 2^53. */
  reader(): () => number {
    const { bytes } = this;
    let at = 0;
    return () => {
      let byte = bytes[at++];
      let value = byte & 0x7f;
      // Bits can be shifted within 32 of them.
      for (let factor = 0x80; byte >= 0x80; factor *= 0x80) {
        byte = bytes[at++];
        value += (byte & 0x7f) * factor;
      }
      return value;
    };
  }
}
