// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded into a user-mode kernel: its entropy comes from a seed, so that
 * two runs with one seed are the same run. METAROCE_SEED names the seed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	static uint64_t state;
	unsigned char *p = buf;
	size_t i;

	(void)flags;
	if (!state) {
		const char *seed = getenv("METAROCE_SEED");

		state = (seed ? strtoull(seed, NULL, 0) : 1) * 0x9e3779b97f4a7c15ull + 1;
	}
	/* splitmix64 */
	for (i = 0; i < len; i++) {
		uint64_t z = state += 0x9e3779b97f4a7c15ull;

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		p[i] = (unsigned char)((z ^ (z >> 31)) >> 24);
	}
	return (ssize_t)len;
}
