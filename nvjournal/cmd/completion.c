/* SPDX-License-Identifier: Apache-2.0 */
/* nvj completion: prints the text of completion/nvj.bash. */
#include <string.h>

#include "nvj.h"

static const char bash[] =
#include "completion.inc"
	;

int command_completion(int count, char **words)
{
	static const struct argument arguments[] = {{0}};
	const char *shell;
	int result = read_arguments("completion", count, words, arguments, &shell);

	if (result)
		return result > 0 ? EXIT_SOUND : EXIT_UNUSABLE;
	if (strcmp(shell, "bash")) {
		complain("completion: \"%s\" is not supported, only bash", shell);
		return EXIT_UNUSABLE;
	}
	fputs(bash, stdout);
	return EXIT_SOUND;
}
