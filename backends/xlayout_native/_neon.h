/* _neon: what the kernels for one lane call, on ARM: 16-byte instructions under the names of Intel's.
 *
 * A vector is bytes, whatever its elements are. A streaming store is a plain one here: ARM processors bypass the
 * caches by themselves where whole lines are written one after another.
 */
#include <arm_neon.h>

typedef uint8x16_t __m128i;

#define _mm_loadu_si128(from) vld1q_u8((const uint8_t *)(from))
#define _mm_storeu_si128(to, v) vst1q_u8((uint8_t *)(to), v)
#define _mm_stream_si128(to, v) _mm_storeu_si128(to, v)
#define _mm_or_si128(x, y) vorrq_u8(x, y)
#define _mm_setr_epi8(...) ((__m128i){__VA_ARGS__})
#define _mm_shuffle_epi8(v, table) vqtbl1q_u8(v, table)

#define WOVEN(HALF, BITS, x, y)                                                                    \
    vreinterpretq_u8_u##BITS(                                                                      \
        vzip##HALF##q_u##BITS(vreinterpretq_u##BITS##_u8(x), vreinterpretq_u##BITS##_u8(y)))
#define _mm_unpacklo_epi8(x, y) vzip1q_u8(x, y)
#define _mm_unpackhi_epi8(x, y) vzip2q_u8(x, y)
#define _mm_unpacklo_epi16(x, y) WOVEN(1, 16, x, y)
#define _mm_unpackhi_epi16(x, y) WOVEN(2, 16, x, y)
#define _mm_unpacklo_epi32(x, y) WOVEN(1, 32, x, y)
#define _mm_unpackhi_epi32(x, y) WOVEN(2, 32, x, y)
#define _mm_unpacklo_epi64(x, y) WOVEN(1, 64, x, y)
#define _mm_unpackhi_epi64(x, y) WOVEN(2, 64, x, y)
