/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the fuzzers' first inputs: each sample without an edit, and with one of
 * each kind in several places.
 *
 *	corpus DIRECTORY
 */
#include "edits.h"
#include "lib/random.h"
#include "lib/sample.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct random random = random_from(1);
	unsigned files = 0;

	if (argc != 2)
		return 2;
	for (uint8_t sample = 0; sample < SAMPLE_KINDS; sample++) {
		for (uint8_t kind = 0; kind < 7; kind++) {
			for (unsigned i = 0; i < 6; i++) {
				uint8_t input[1 + EDIT_BYTES * 3];
				char path[4096];
				FILE *file;

				input[0] = sample;
				for (size_t k = 1; k < sizeof(input); k++)
					input[k] = (uint8_t)random_next(&random);
				input[1] = kind;
				snprintf(path, sizeof(path), "%s/%u", argv[1], files++);
				file = fopen(path, "wb");
				if (file == NULL)
					return 1;
				fwrite(input, 1, 1 + EDIT_BYTES * (i % 4), file);
				if (fclose(file) != 0)
					return 1;
			}
		}
	}
	return 0;
}
