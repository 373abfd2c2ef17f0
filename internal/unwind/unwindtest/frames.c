//go:build ignore
/*
 * A program without a library that knows its own frames: it writes the return address of each
 * function on its stack, innermost first, to standard output, and reads standard input. It is
 * made for machines on which tests run without a compiler:
 *
 *   clang-16 --target=x86_64-linux-gnu  -O1 -fPIE -fno-stack-protector -nostdlib -fasynchronous-unwind-tables -c frames.c
 *   clang-16 --target=aarch64-linux-gnu -O1 -fPIE -fno-stack-protector -nostdlib -fasynchronous-unwind-tables -mbranch-protection=standard -c frames.c
 *   ld -pie --no-dynamic-linker --eh-frame-hdr --export-dynamic -z max-page-size=16384 -z noseparate-code
 */
typedef unsigned long word;

static long call(long number, long a, long b, long c)
{
#ifdef __x86_64__
	long result;

	asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
#else
	register long x8 asm("x8") = number;
	register long x0 asm("x0") = a;
	register long x1 asm("x1") = b;
	register long x2 asm("x2") = c;

	asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#endif
}

#ifdef __x86_64__
enum { READ = 0, WRITE = 1, EXIT = 231 };
#define RETURNS ((word)__builtin_return_address(0))
#else
enum { READ = 63, WRITE = 64, EXIT = 94 };
#define RETURNS ((word)__builtin_extract_return_addr(__builtin_return_address(0)) & 0xffffffffffff)
#endif

/* What the functions on the stack return to, outermost first. */
static word returns[64];
static volatile int count;
static volatile int work;

#define ENTER returns[count++] = RETURNS
#define OWN __attribute__((noinline, visibility("default")))

OWN void wait_here(void)
{
	word order[64];
	char byte;
	int n = count;

	ENTER;
	n = count;
	for (int i = 0; i < n; i++)
		order[i] = returns[n - 1 - i];
	call(WRITE, 1, (long)order, n * (long)sizeof(word));
	while (call(READ, 0, (long)&byte, 1) > 0)
		work++;
	count--;
}

/* Its frame has a size that only it knows. */
OWN void with_room(int n)
{
	char *room = __builtin_alloca(n * 16);

	ENTER;
	for (int i = 0; i < n * 16; i++)
		((volatile char *)room)[i] = i;
	wait_here();
	work += room[n];
	count--;
}

/* It keeps many values across a call. */
OWN int with_registers(int a, int b, int c, int d, int e)
{
	int x = a * b, y = b * c, z = c * d, v = d * e, w = e * a;

	ENTER;
	with_room(a + b);
	count--;
	return x + y + z + v + w + a + b + c + d + e;
}

OWN void deep(int n)
{
	ENTER;
	if (n > 0)
		deep(n - 1);
	else
		work += with_registers(1, 2, 3, 4, 5);
	work++;
	count--;
}

OWN void begin(void)
{
	ENTER;
	deep(5);
	count--;
	call(EXIT, 0, 0, 0);
}

#ifdef __x86_64__
asm(".globl _start\n.type _start,@function\n_start:\n.cfi_startproc\n.cfi_undefined rip\nxor %ebp, %ebp\nand $-16, %rsp\ncall begin\nhlt\n.cfi_endproc\n.size _start,.-_start");
#else
asm(".globl _start\n.type _start,@function\n_start:\n.cfi_startproc\n.cfi_undefined x30\nmov x29, #0\nmov x30, #0\nbl begin\nbrk #0\n.cfi_endproc\n.size _start,.-_start");
#endif
