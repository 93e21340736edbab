"""Matrix products on the device: which kernels run for a weight and a number of tokens, and what they are given.

How a weight gets there, at load:

    layout = Layout.of("Q4_K", rows, columns, experts=1)      # layout.py
    layout.arrays                                             # {"low": Array("i32", (…)), "scale": …, …}: what to allocate
    arrays = layout.pack(data)                                # uint8 [experts · rows, bytes of a row] → the same names, NumPy

Tiles are 8 rows by 128 columns; rows and columns are padded (`layout.padded` columns).

What a product reads, besides the weight. `layout.activation(tokens, exact)` says which kind:

    "q8"   8-bit blocks of 32, natural order, for up to 4 tokens of quantized weights:
               x8 i8 [tokens, padded], xd f32 [tokens, padded/32] scales,
               xs i32 [tokens, padded/32] sums of the first 16 (lower half word) and of the last 16 (upper half word)
    "f16"  float16 for the tensor cores, columns in fragment order (`fragment` below), and for F16 and BF16 weights always:
               xf f16 [tokens, padded], xe f32 [tokens] the power of two that a row was divided by
    "f32"  float32 as it is, for F32 weights:
               x f32 [tokens, columns]

`activations.prepare_q8` and `activations.prepare_f16` make them of float32 rows; kernels that compute such rows (norm, silu · up,
attention) can end in `activations.store_q8` or `activations.store_f16` instead. Padding is written as zeros.

    product(layout, tokens, exact=False, add=False, bias=False, grouped=0) → [Call, …]

A `Call` is a kernel ("file.function" under kernels), its grid, constants, warps, stages, and its arguments: numbers, or the names
of what the caller puts there: the layout's arrays, those of the activation, and

    out     f32 [tokens, rows]: the product
    add     f32 [tokens, rows]: added to it (the residual stream; may be `out` itself)
    bias    f32 [rows]
    parts   f32 [split, tokens, rows]: workspace, where `call.parts` is not 0 (floats)
    image   f16 [rows, padded]: workspace for a dequantized weight (long prompts), where `call.image` is not 0 (halves)
    expert  i32 [items]: grouped products: the expert of each item
    source  i32 [items]: grouped products: the row of the activation that an item reads
    order, starts: of `group` (below)

Tokens are a bucket: `tokens` is what the grid is made for; the number that there really are is the argument "count"
(i32, on the host: part of a captured graph). Rows of activations beyond it are read, and may hold anything finite; rows of `out` are
written for all of `tokens`.

Same bits: products by tensor cores sum in an order that depends on rows and columns alone, never on the number of tokens.
`exact=True` uses them for one token as well.
"""
