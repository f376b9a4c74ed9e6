/* An MPI library as a peer of the clock, whichever this is compiled with.
 *
 * Usage: mpirun -n RANKS peer MAX_BYTES. It says `ready` and the library's version, then answers each line
 * `OP BYTES WARMUP ITERATIONS` of rank 0's standard input with the microseconds of one operation on floats, until
 * the input ends. BYTES is the size of the whole array, as nccl-tests counts it. Between its turns it sleeps: MPI's
 * own waiting would spin, and take the others' processor. */
#define _POSIX_C_SOURCE 200112L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, OPS, END };
static const char *const NAMES[OPS] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"};

/* One turn, as it goes from rank 0 to all. */
struct order { long op, bytes, warmup, iterations; };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* the same for all processes of a machine */
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void carry_out(const struct order *order, int ranks, float *source, float *destination) {
    int count = (int)(order->bytes / 4), chunk = count / ranks;
    switch (order->op) {
    case ALL_REDUCE: MPI_Allreduce(source, destination, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case ALL_GATHER: MPI_Allgather(source, chunk, MPI_FLOAT, destination, chunk, MPI_FLOAT, MPI_COMM_WORLD); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(source, destination, chunk, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case BROADCAST: MPI_Bcast(source, count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case ALL_TO_ALL: MPI_Alltoall(source, chunk, MPI_FLOAT, destination, chunk, MPI_FLOAT, MPI_COMM_WORLD); break;
    }
}

/* Rank 0 reads the next order; anything that is none ends the program. */
static void read_order(struct order *order, long most) {
    char line[128], name[32];
    order->op = END;
    if (!fgets(line, sizeof line, stdin)) return;
    if (sscanf(line, "%31s %ld %ld %ld", name, &order->bytes, &order->warmup, &order->iterations) != 4
        || order->bytes < 0 || order->bytes > most || order->iterations < 1) {
        fprintf(stderr, "not an order: %s", line);
        return;
    }
    for (int op = 0; op < OPS; op++)
        if (!strcmp(name, NAMES[op])) order->op = op;
}

/* All ranks get the order; those that wait for it look ever more rarely, at last every 5 ms. */
static void share_order(struct order *order, int rank) {
    MPI_Request request;
    int done = 0;
    long pause = 100000;
    MPI_Ibcast(order, 4, MPI_LONG, 0, MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) {
        struct timespec nap = {0, pause};
        if (rank) nanosleep(&nap, NULL);
        if (pause < 5000000) pause += pause / 2;
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long most = argc > 1 ? atol(argv[1]) : 0;
    float *source = NULL, *destination = NULL;
    if (most <= 0 || posix_memalign((void **)&source, 4096, most) || posix_memalign((void **)&destination, 4096, most)) {
        fprintf(stderr, "rank %d: can't allocate twice %ld bytes\n", rank, most);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (long at = 0; at < most / 4; at++) {
        source[at] = (float)(at % 509 * 8 + rank);
        destination[at] = -1;
    }
    if (!rank) {
        char version[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(version, &length);
        version[strcspn(version, ",\n")] = 0;
        for (char *tab = version; (tab = strchr(tab, '\t'));) *tab = ' ';
        printf("ready,%s\n", version);
        fflush(stdout);
    }
    for (;;) {
        struct order order;
        if (!rank) read_order(&order, most);
        share_order(&order, rank);
        if (order.op == END) break;
        for (long i = 0; i < order.warmup; i++) carry_out(&order, ranks, source, destination);
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = now();
        for (long i = 0; i < order.iterations; i++) carry_out(&order, ranks, source, destination);
        double ended = now(), first, last;
        MPI_Reduce(&begun, &first, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
        MPI_Reduce(&ended, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (!rank) {
            printf("%.6f\n", (last - first) * 1e6 / order.iterations);
            fflush(stdout);
        }
    }
    free(source);
    free(destination);
    MPI_Finalize();
}
