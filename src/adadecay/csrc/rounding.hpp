// Stochastic rounding of bfloat16 weights, which the GPU engine and torch's operations do
// with the same random numbers: included after vector.hpp, inside the same namespace.

// Random numbers of 16 bits, which rounding.py defines.
INLINE Words draws(const Rounding& by, uint64_t first) {
  Words x;
  for (int k = 0; k < kF32; ++k) x[k] = k;
  x += static_cast<uint32_t>(first);
  const Words carry = Words(x < static_cast<uint32_t>(first));  // -1 past 2^32
  x ^= by.keys[0];
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) + (by.keys[1] ^ (static_cast<uint32_t>(first >> 32) - carry));
  return x * 0x846ca68bu >> 16;
}

// Stores new weights; `first` is the place of the first of them.
template <class T, class V>
INLINE void store_weights(T* to, V x, bool, const Rounding&, uint64_t) {
  store(to, x);
}
__attribute__((noinline)) void store_at_random(BFloat16* to, const Floats& x,
                                               const Rounding& by, uint64_t first) {
  for (int k = 0; k < kParts; ++k) {
    store_upper(to + k * kF32, x.v[k], draws(by, first + k * kF32));
  }
}
INLINE void store_weights(BFloat16* to, Floats x, bool rounds, const Rounding& by,
                          uint64_t first) {
  if (!rounds) return store(to, x);
  store_at_random(to, x, by, first);
}
