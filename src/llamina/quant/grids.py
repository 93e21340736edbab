"""Lookup tables of the formats that store an index instead of a value.

A codebook (ggml's "grid") is a fixed list of short vectors: IQ1, IQ2 and IQ3 blocks hold, for every 8
weights (IQ3: 4), the number of a vector in it. The vectors draw their elements from a few ascending levels
(3 of them, or 8), and ggml lists them in ascending order of

    rank = sum over i of (index of element i in levels) * len(levels) ** i

so the set of ranks defines the codebook. It is stored as a bitmap (bit r set: the vector of rank r is in the
codebook; bits count from the low end of each byte), deflated, in base 85.
"""

import base64
import zlib

import numpy as np
from numpy.typing import NDArray


def _codebook(levels: tuple[int, ...], width: int, packed: str) -> NDArray[np.int8]:
    """Return the vectors of a codebook in order: int8 [entries, width]."""
    bitmap = np.frombuffer(zlib.decompress(base64.b85decode(packed)), np.uint8)
    ranks = np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
    digits = ranks[:, None] // len(levels) ** np.arange(width) % len(levels)
    return _frozen(np.array(levels, np.int8)[digits])


def _frozen(table: NDArray[np.int8]) -> NDArray[np.int8]:
    table.flags.writeable = False
    return table


def _signs() -> NDArray[np.int8]:
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return _frozen(1 - 2 * bits.astype(np.int8))


# Signs of 8 weights from a byte, int8 [256, 8]: bit i set means weight i is negative.
SIGNS = _signs()

# The same from 7 bits, int8 [128, 8]: the eighth sign makes the number of negative weights even.
EVEN_SIGNS = _frozen(SIGNS[[i | (i.bit_count() & 1) << 7 for i in range(128)]])

# The 16 levels of IQ4_NL and IQ4_XS, finer near zero.
IQ4_LEVELS = _frozen(np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8))

# The 16 values of a 4-bit float (sign, 2 exponent bits, 1 mantissa bit), doubled to be whole numbers.
FP4_DOUBLED = _frozen(np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8))

_TERNARY = (-1, 0, 1)
_IQ2_LEVELS = (8, 25, 43)

# int8 [2048, 8], an index of 11 bits.
IQ1_GRID = _codebook(
    _TERNARY,
    8,
    (
        "c-k#eK}(!R7=CxE;dM-9V?RN1diSfb(^(PgE$L;EU0C#DLh=VZ*|bQ>IZZw%yXlwN6ha`hG?#HO$v6$G@ldv(umMk2dT8mb2WdTo"
        "x*h^v8VtnDuD#8?@Vw9Syw7v(LR2?w<}y}3b9YJG^C&5*&qs>Nl?x;NhAB!%0hRecnsm$a2YwJ@;QqccSPG~@n#@N5uBY$^gNY22"
        "s7}?HYgoxmY#Y+!Ajh1yxWA4l1OzVO1-XRyWBes^wA;LAoBq<x!%nuPhFWp9`{&R@7DG%<XIwD^Is3Q$Jf@<B<<hd(0^?jzIHG8v"
        "Qn*?-$Ub(LsHW&@kYNcQ%|}dP%c;av8KJU^mWiJv*28-WD<$YEG%#}+D!ES;XeDuFD(VlG#i@A4$V;H%7rH52w&LB_pg1xSvl=L<"
        "CZ@9?{WdkSxbxSuMq|l64F4MqT|O(RS}O@H(bLXvHn!_OntvSw2GXTKiD_6XGLxujp0!)qyF+V=7Bv?g3oFy??D1-6?{(2le%HQr"
        "c>Le(m#@Cb_P%)g$;r#{<KcsUbe#9?p_<1{H>jE?+1SCIq;Fwj@yPMjA_U90?}vdY$)D1%>fQq-z{36HBT$I&mG*v%J#A~V%aSj@"
        "pZtCEAg}V1eou`2@uUxU_YQ=)6;l3U7EjmAKr#y2F0kdO91c}@u6ikZ68>90+)KINV7E3oVy0wcNC7Qg*Gnz$6Ckekcj5w;yQl$8"
        "BcV}uIeIA*;9XR~L2uzcrHYS+2)y-rqrtcg6e{stpn$cM#il(dTBx(R&0u-;P1DmAvG}u@dX;b%ns9v~6p49X^c}lqEMlIFjzJBb"
        "rp$X4T{{D_p5YV7e^~xM<^E7<_56qcAaL=FI+lT|4v2#Y&dpW2-Egd@Fdf5G@Dheeu*|v(bMFD;1sQ1"
    ),
)

# int8 [256, 8], an index of 8 bits.
IQ2_XXS_GRID = _codebook(
    _IQ2_LEVELS,
    8,
    (
        "c-nPRORB^$43oj#tB`je2YP^R=KfcCw)5@K5e=lV<VbEmf91ogR%p3E0BR^O#16P=^@J3)+t0mx___f>P^zDolEn6;is&dxI!#Zg"
        "_{KuzkVd4Mw`?l*l~*(z5~c8Qj-!-YZym34v`$TQ4<4*~)dpL;rq|+W4irx`d$&)6^vGb7UkLBrzcFbHqcf>sMFwRxr;MTG;*}m%"
        "Qlby-@@TSk)X7om@@#uKQIjUUWQ&$2&y}*gX5TV=Bc|Cuh1wL(2Kn3A3Yj<N%;gblzhT7_jxp@MF=lA5st5R^Hl2J=^JV`E{Z0D^"
        "#$6R7"
    ),
)

# int8 [512, 8], an index of 9 bits.
IQ2_XS_GRID = _codebook(
    _IQ2_LEVELS,
    8,
    (
        "c-mc2TdsvL2pkgnkBRPwCicH3cK=&BJX-bM<{ZTW!^|+oxJIi-qkD|rsuaR~iB<*?x~C4>8J0pJW<V>X*vo#SY&(-c)w(<-fCU6Q"
        "Vt|)*=>oJ=N8h~B3mmYKBw*Y)Ca<s*uvOak7T*la5<g=kAh?T96(5+bR(Mt@J=L5^n!u1sF+~=p=RjVCGbM+vDH*59tF!>kC`)-u"
        "3GzO}jM8X_r-*1ytubG*&a^iqGs?p-do}D8x2NWXU?%O)=7t88q040RdJ=Ak)9T+$YBcFD31^6BC_W+mG1}iEA-T}Oj@u6-pQ1yB"
        "yIl9%`W3mW#F%j~<yh(N0zSL~oH^Zy%}}tQx4=M73#xoc?jNErTmD?iDs40;(&MG>YYMNuDE=SK;cc#9vM%q_=>7msuqjC"
    ),
)

# int8 [1024, 8], an index of 10 bits.
IQ2_S_GRID = _codebook(
    _IQ2_LEVELS,
    8,
    (
        "c-n1JU5W-F3~NE(E9iYHjPDBe{#V(wI=kPpE5rQ7#3X8F%Z9aF@G^(h-0EI3Em0|W3^QwctZ7zp0a8G#rYWS&oF&YfEj@sgh^u5F"
        "BBgC>LAkBEEtarKv-X}c)kMD5E9g)N*35uFS6j&;COQ!QC2=T0oAzp}=fs8f?3xctXeG?g^dQAA!2(KVP=j1x!<Qgx@l7F)Pu!TM"
        "d$m>{ZzEray(N$AzRb24)#*U9zYZZF^+2!@EVQ9?ARiEH!J<ErE8usn4?()-BQhW*1pE<<S|Z6aT82aQO}QP4+el6zUY~*z7~Sl6"
        "pK?p!Q_DMIhH4w7?joIO9P^#Dw9CRS7mu8OBC|vDii4FoWN_zK9m?6y$}qXC*pyH_2f!)+bXep&HXz~CYasM7Fd3(JhmM~KIbkHJ"
        "7yU4;E692~{FNElHOf~Fzm+TBn!W(JyjC6"
    ),
)

# int8 [256, 4], an index of 8 bits.
IQ3_XXS_GRID = _codebook(
    (4, 12, 20, 28, 36, 44, 52, 62),
    4,
    (
        "c-l=-F%H5o3_M%0RAmZ7_lgPeigaLyA4Q!IuVCbv_?)J2Rn;aw-<^~BWtxCXwzFx0%xW)eST<YW5KL&L;j#hAAHoX-c)&}FY<X@1"
        "m|7IGsjrX>q7@bAuHrcP3L2_`6x)_>^v5;&o?@Fdagv_Uo9H*utGOGEJ93R6P|L2rgx{U}Y-UnrS3sKYtPIbF!WdDS7|dsT<9UQC"
        "qzhJe8+4kK5km%XvHjm=J(sMgqk-e3v^zjTJayVggoDWMJzTWE4a0T)3l-9P!ydlNePrBA?Xny*@kmBo4W|8$?wEo20v5Uy_5"
    ),
)

# int8 [512, 4], an index of 9 bits.
IQ3_S_GRID = _codebook(
    (1, 3, 5, 7, 9, 11, 13, 15),
    4,
    (
        "c-k#d!AiqG5PdVu!e&pqA>uXNMyUCUt<-~hDT4SrX{pfmmf{D9Rs{Q#&TgE;z`Qr}-rMBob#A|%IbF{W(Id*&Lkwq!%0~0(%@Ao{"
        "OU0lD_x2OXCI^OquXIKLt}o^pYnG?L6&oz+9HeSVPSrN(A}t!YmF^Xmp*3Qy-5G8(e|b5Y-VC?q(AA>+32wuC)HmEXp@c1}PT|h8"
        "3}iuXSwt^ePGkv?U+Lf3a_=1ov?9@{igP&9v4ypFswx3&TJZ@M2_=SuX>*z&qp%+CoXl)ge8!drA@5Agyn!FG+()?*sDei}n1QT9"
        "5(J|p-wR7#Aht{0!Hx!aZfy;cl!bD4D3uqR(zW`GY5;6>@R{_|3X$jRqNR^eu)^e<Ll^vCYlKPU1;QQ+o$IB(hKom+bHx0SXmXXw"
        "yZnVo8~6jd#wQ>"
    ),
)
