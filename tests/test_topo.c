/* test_topo.c - texts of `nvidia-smi topo -m`, as terminals, logs and chats pass them on. */
#include "server/topo.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"

#define LEGEND                                                                                  \
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP "       \
    "interconnect between NUMA nodes (e.g., QPI/UPI)\n  NV#  = Connection traversing a bonded " \
    "set of # NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"

static struct topo t;
static struct machine m;

static int parse(const char *text)
{
    struct err err = {0};
    const int rc = topo_parse(&t, text, &err);

    EXPECT((rc == 0) == (err.text[0] == '\0') && strchr(err.text, '\n') == NULL);
    return rc;
}

static bool is_link(int i, int j, const char *word)
{
    char a[8], b[8];

    link_word(a, &t.links[i][j]);
    link_word(b, &t.links[j][i]);
    return strcmp(a, word) == 0 && strcmp(b, word) == 0;
}

static bool has_cores(int i, const char *text)
{
    char cores[256];

    cores_text(cores, sizeof cores, &t.cores[i]);
    return strcmp(cores, text) == 0;
}

/* Two pairs with bridges, in two sockets; the header underlined by the terminal. */
static void pairs_with_escapes_and_tabs(void)
{
    EXPECT(
        parse("\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
              "GPU0\t X \tNV12\tSYS\tSYS\t0-31,64-95\t0\t\tN/A\n"
              "GPU1\tNV12\t X \tSYS\tSYS\t0-31,64-95\t0\t\tN/A\n"
              "GPU2\tSYS\tSYS\t X \tNV12\t32-63,96-127\t1\t\tN/A\n"
              "GPU3\tSYS\tSYS\tNV12\t X \t32-63,96-127\t1\t\tN/A\n" LEGEND) == 0);
    EXPECT(t.gpu_count == 4 && is_link(0, 1, "NV12") && is_link(2, 3, "NV12"));
    EXPECT(is_link(0, 2, "SYS") && is_link(1, 3, "SYS") && is_link(0, 0, "X"));
    EXPECT(has_cores(0, "0-31,64-95") && has_cores(3, "32-63,96-127"));
    EXPECT(t.node[0] == 0 && t.node[2] == 1);
}

/* Eight cards behind switches, with network cards between, after the prompt of a shell. */
static void eight_behind_a_switch_with_nics(void)
{
    char text[4096];
    size_t n = 0;

    n += (size_t)snprintf(text + n, sizeof text - n, "root@node7:~# nvidia-smi topo -m\r\n\t");
    for (int i = 0; i < 8; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "GPU%d\t", i);
    }
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "NIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\r\n");
    for (int i = 0; i < 8; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "GPU%d\t", i);
        for (int j = 0; j < 8; j++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s\t", i == j ? " X " : "NV18");
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "PIX\tSYS\t%s\t%d\t\tN/A\r\n",
                              i < 4 ? "0-55,112-167" : "56-111,168-223", i / 4);
    }
    (void)snprintf(text + n, sizeof text - n,
                   "NIC0\tPIX\tPIX\tPIX\tPIX\tSYS\tSYS\tSYS\tSYS\t X \tSYS\t\t\t\r\n" LEGEND);
    EXPECT(parse(text) == 0 && t.gpu_count == 8);
    EXPECT(is_link(0, 7, "NV18") && is_link(3, 4, "NV18") && is_link(7, 7, "X"));
    EXPECT(has_cores(7, "56-111,168-223") && t.node[7] == 1 && t.node[3] == 0);
}

/* Tabs became blanks. */
static void aligned_blanks(void)
{
    EXPECT(parse("        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
                 "GPU0     X      PIX     0-15            0\n"
                 "GPU1    PIX      X      0-15            0\n") == 0);
    EXPECT(t.gpu_count == 2 && is_link(0, 1, "PIX") && has_cores(1, "0-15") && t.node[1] == 0);
}

static void four_that_only_meet_between_sockets(void)
{
    EXPECT(parse("\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n"
                 "GPU0\t X \tSYS\tSYS\tSYS\t0-7\t0\nGPU1\tSYS\t X \tSYS\tSYS\t8-15\t1\n"
                 "GPU2\tSYS\tSYS\t X \tSYS\t16-23\t2\nGPU3\tSYS\tSYS\tSYS\t X \t24-31\t3\n") == 0);
    for (int i = 0; i < 4; i++) {
        EXPECT(t.node[i] == i && t.links[i][(i + 1) % 4].kind == LINK_SYS);
    }
}

/* Drivers before 2020: no NUMA column, network cards by their names, SOC for SYS. */
static void old_drivers(void)
{
    EXPECT(parse("\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X \tSOC\tPHB\t0-9,20-29\n"
                 "GPU1\tSOC\t X \tSOC\t10-19,30-39\nmlx5_0\tPHB\tSOC\t X \t\n") == 0);
    EXPECT(t.gpu_count == 2 && is_link(0, 1, "SYS") && has_cores(0, "0-9,20-29"));
    EXPECT(t.node[0] == -1);
}

/* Links of several kinds, and columns that are empty. */
static void mixed_links_and_empty_columns(void)
{
    EXPECT(parse("\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                 "GPU0\t X \tPXB\tNODE\tPXB\t\t\t\tN/A\nGPU1\tPXB\t X \tPHB\tNODE\t\t1\t\tN/A\n"
                 "GPU2\tNODE\tPHB\t X \tSYS\tN/A\tN/A\t\tN/A\n") == 0);
    EXPECT(is_link(0, 1, "PXB") && is_link(0, 2, "NODE") && is_link(1, 2, "PHB"));
    EXPECT(has_cores(0, "") && t.node[0] == -1 && t.node[1] == 1 && t.node[2] == -1);
}

/* The last rows did not fit the screen; what the others say of them counts. */
static void a_text_that_ends_early(void)
{
    EXPECT(parse("\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\n"
                 "GPU0\t X \tNV4\tSYS\t0-7\t0\nGPU1\tNV4\t X \tSY") == 0);
    EXPECT(t.gpu_count == 3 && is_link(0, 1, "NV4") && is_link(0, 2, "SYS"));
    EXPECT(t.links[1][2].kind == LINK_NONE && has_cores(0, "0-7") && has_cores(1, ""));
}

/* Whatever part is there; a number behind the NUMA column is another one. */
static void a_text_that_begins_late(void)
{
    EXPECT(parse("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                 "GPU1\tNV4\t X \t0-7\t\t3\n") == 0);
    EXPECT(t.gpu_count == 2 && is_link(0, 1, "NV4") && t.node[1] == -1 && has_cores(1, "0-7"));
    EXPECT(parse("\tGPU0\tNIC0\tGPU1\nGPU0\t X \tPIX\tSYS\n") == 0);
    EXPECT(t.gpu_count == 1); /* cards come first */
}

static void a_text_without_its_header(void)
{
    EXPECT(parse("GPU0\t X \tPHB\t0-11\t0\nGPU1\tPHB\t X \t0-11\t0\n") == 0);
    EXPECT(t.gpu_count == 2 && is_link(0, 1, "PHB") && has_cores(0, "0-11") && t.node[1] == 0);
}

/* Escapes whose first byte a browser dropped, and a log that writes its own words before each line. */
static void a_text_out_of_a_log(void)
{
    EXPECT(parse("INFO 10:01:02 [4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity[0m\n"
                 "INFO 10:01:02 GPU0\t X \tNODE\t0-23\t0\nINFO 10:01:02 GPU1\tNODE\t X \t0-23\t0\n"
                 "INFO 10:01:03 GPU1 is warm\n") == 0);
    EXPECT(t.gpu_count == 2 && is_link(0, 1, "NODE") && has_cores(1, "0-23"));
}

static void one_card_and_the_same_text_twice(void)
{
    EXPECT(parse("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t0\n") == 0);
    EXPECT(t.gpu_count == 1 && has_cores(0, "0-3") && t.node[0] == 0);
    EXPECT(parse("\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\t X \n"
                 "\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\t X \n") == 0);
    EXPECT(t.gpu_count == 2 && is_link(0, 1, "NV2"));
}

/* Memory of cards has nodes of its own on some machines; the processor's is named first. */
static void several_nodes_near_a_card(void)
{
    EXPECT(parse("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                 "GPU0\t X \tNV18\t0-71\t0,2-17\tN/A\nGPU1\tNV18\t X \t72-143\t1,18-33\tN/A\n") ==
           0);
    EXPECT(is_link(0, 1, "NV18") && t.node[0] == 0 && t.node[1] == 1 && has_cores(1, "72-143"));
}

/* A kind of link that nobody knows yet is one that is not known; the rest of its row counts. */
static void words_of_later_drivers(void)
{
    EXPECT(parse("\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\n"
                 "GPU0\t X \tC2C\tSYS\t0-3\t0\nGPU1\tC2C\t X \tN/A\t4-7\t1\n"
                 "GPU2\tSYS\tN/A\t X \t8-11\t1\nGPU1 has X errors\n") == 0);
    EXPECT(t.links[0][1].kind == LINK_NONE && t.links[1][2].kind == LINK_NONE);
    EXPECT(is_link(0, 2, "SYS") && has_cores(1, "4-7") && t.node[1] == 1 && t.node[2] == 1);
}

/* Ends of lines of other systems, blanks of pages, and cores that are numbered by turns. */
static void texts_of_other_systems(void)
{
    static char text[8192];
    size_t n = 0;

    EXPECT(parse("\tGPU0\tGPU1\tCPU Affinity\rGPU0\t X \tPHB\t0-3\rGPU1\tPHB\t X \t0-3\r") == 0);
    EXPECT(t.gpu_count == 2 && is_link(0, 1, "PHB") && has_cores(0, "0-3"));
    EXPECT(parse("\xc2\xa0\xc2\xa0GPU0\xc2\xa0GPU1\nGPU0\xc2\xa0X\xc2\xa0NV2\nGPU1\xc2\xa0NV2\xc2"
                 "\xa0X\n") == 0);
    EXPECT(t.gpu_count == 2 && is_link(0, 1, "NV2"));
    n += (size_t)snprintf(text, sizeof text, "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0");
    for (int core = 2; core < 1024; core += 2) {
        n += (size_t)snprintf(text + n, sizeof text - n, ",%d", core);
    }
    (void)snprintf(text + n, sizeof text - n, "\t1\n");
    EXPECT(parse(text) == 0 && cores_count(&t.cores[0]) == 512 && t.node[0] == 1);
}

static void what_is_no_such_text_is_refused(void)
{
    static const char *const bad[] = {
        "",
        "No devices were found\n",
        "\n\n\n",
        "GPU GPU GPU\n",
        "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tSYS\t X \n",
        "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV2\t X \n",
        "\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tX\tPIX\n",
        "\tGPU0\tGPU1\nGPU2\t X \tPIX\n",
        "GPU64 X\n",
        "GPU999\tPIX\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(parse(bad[i]) == ERR_BAD_FILE);
    }
    char *large = malloc(TOPO_BYTES + 2);
    CHECK(large != NULL, "no memory");
    memset(large, 'G', TOPO_BYTES + 1);
    large[TOPO_BYTES + 1] = '\0';
    EXPECT(parse(large) == ERR_BAD_FILE);
    free(large);
}

/* On a machine: links and what it does not know yet, for its cards alone. */
static void a_text_completes_a_machine(void)
{
    struct err err = {0};

    memset(&m, 0, sizeof m);
    m.device_count = 3;
    m.node_count = 2;
    m.devices[0].kind = DEVICE_CPU;
    m.devices[1] = (struct device){.kind = DEVICE_GPU, .node = -1};
    m.devices[2] = (struct device){.kind = DEVICE_GPU, .node = 0};
    EXPECT(parse("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-3\t1\n"
                 "GPU1\tNV4\t X \t4-7\t1\n") == 0);
    EXPECT(topo_apply(&m, &t, &err) == 0);
    EXPECT(m.links[1][2].kind == LINK_NVLINK && m.links[2][1].count == 4);
    EXPECT(m.devices[1].node == 1 && m.devices[2].node == 0 && m.devices[2].core_count == 4);
    m.device_count = 2;
    EXPECT(topo_apply(&m, &t, &err) == ERR_BAD_FILE);
}

/* More links than a card has: they go through a switch. */
static void switches_are_told_by_their_numbers(void)
{
    memset(&m, 0, sizeof m);
    m.device_count = 3;
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            m.links[i][j] = i == j ? (struct link){.kind = LINK_SELF}
                                   : (struct link){.kind = LINK_NVLINK, .count = 9};
        }
    }
    links_mark_switches(&m);
    EXPECT(!m.links[0][1].is_switch);
    for (int i = 0; i < 9; i++) {
        m.links[i / 3][i % 3].count *= 2;
    }
    links_mark_switches(&m);
    EXPECT(m.links[0][1].is_switch && m.links[2][0].is_switch && !m.links[1][1].is_switch);
}

int main(void)
{
    RUN(pairs_with_escapes_and_tabs);
    RUN(eight_behind_a_switch_with_nics);
    RUN(aligned_blanks);
    RUN(four_that_only_meet_between_sockets);
    RUN(old_drivers);
    RUN(mixed_links_and_empty_columns);
    RUN(a_text_that_ends_early);
    RUN(a_text_that_begins_late);
    RUN(a_text_without_its_header);
    RUN(a_text_out_of_a_log);
    RUN(one_card_and_the_same_text_twice);
    RUN(several_nodes_near_a_card);
    RUN(words_of_later_drivers);
    RUN(texts_of_other_systems);
    RUN(what_is_no_such_text_is_refused);
    RUN(a_text_completes_a_machine);
    RUN(switches_are_told_by_their_numbers);
    return tap_done();
}
