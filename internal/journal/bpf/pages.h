/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From a page to the file whose page cache has it.
 */
#ifndef DAYBOOK_PAGES_H
#define DAYBOOK_PAGES_H

#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/*
 * Returns a number or a pointer as a number that the verifier knows nothing of: so it
 * follows a program once and not for each number, and allows to compute with an address.
 */
static __always_inline __u64 as_unknown(__u64 number)
{
	asm volatile("%0 = be64 %0; %0 = be64 %0" : "+r"(number));
	return number;
}

/*
 * The least mask in compound_info (see folio_of). The kernel keeps addresses of
 * struct page below it, on x86-64 and arm64 (Linux 7.2: VMEMMAP_END); a mask of a
 * folio of 2^18 pages is still above it.
 */
#define LEAST_MASK 0xffffffffc0000000ULL

/*
 * Returns the first page of the folio of a page. Bit 0 of the first word of struct
 * page means that the page is another one of the folio. The rest of the word is then
 * the address of the first one. In Linux 7.2 the field is compound_info; if struct page has
 * a size that is a power of two, the rest is there a mask, and the address of this page
 * under the mask is that of the first one (include/linux/page-flags.h: _compound_head).
 */
static __always_inline struct page *folio_of(struct page *page)
{
	struct page___compound_info *later = (struct page___compound_info *)page;
	unsigned long word;

	if (bpf_core_field_exists(later->compound_info))
		word = BPF_CORE_READ(later, compound_info);
	else
		word = BPF_CORE_READ(page, compound_head);
	if (!(word & 1))
		return page;
	if (word >= LEAST_MASK)
		return (struct page *)(as_unknown((__u64)page) & word);
	return (struct page *)(word - 1);
}

/*
 * Returns the inode of the file or block device whose page cache has a page, or NULL
 * for other pages, such as those of direct I/O and kernel buffers. Such a page can
 * hold anything. So the inode that the page names counts only if that inode's mapping
 * has the page.
 */
static __always_inline struct inode *inode_of_page(struct page *page)
{
	struct address_space *mapping = NULL;
	struct inode *inode;

	if (!page)
		return NULL;
	page = folio_of(page);
	if (bpf_core_type_exists(struct folio))
		mapping = BPF_CORE_READ((struct folio *)page, mapping);
	else
		mapping = BPF_CORE_READ(page, mapping);
	if (!mapping || ((unsigned long)mapping & 3))
		return NULL;
	inode = BPF_CORE_READ(mapping, host);
	if (!inode || BPF_CORE_READ(inode, i_mapping) != mapping)
		return NULL;
	return inode;
}

#endif
