/* vmath_tables - the two kinds of gelu as polynomials on short intervals, for vmath_functions.h.
 * Included by vmath.h; kernels for GPUs say how they declare tables.
 *
 * With a = |x| gelu is max(x, 0) - a tail(a), and its derivative slope(a) below zero and
 * 1 - slope(a) above: tail is the part of the distribution beyond a (the normal one, or the sigmoid
 * of the tanh formula), slope the derivative at -a. Column n holds the coefficients, constant
 * first, of Chebyshev interpolation on the interval of width 13/32 around 13/32 n, in t = a - 13/32
 * n; from 13/32 14.5 = 5.89 on the value is taken as 0, which is wrong by at most 7e-8. Errors
 * inside: tails 1.5e-8, slopes 1e-8.
 */
#ifndef SHOALI_OPS_VMATH_TABLES_H
#define SHOALI_OPS_VMATH_TABLES_H

#ifndef SHOALI_VMATH_TABLE
#define SHOALI_VMATH_TABLE static const
#endif

#define SHOALI_VMATH_INTERVALS 16
#define SHOALI_VMATH_INTERVAL 0x1.ap-2f          /* 13/32 */
#define SHOALI_VMATH_PER_INTERVAL 0x1.3b13b2p+1f /* 32/13 */
#define SHOALI_VMATH_LAST 0x1.86p+2f             /* 15 intervals */
#define SHOALI_VMATH_TAIL_TERMS 6
#define SHOALI_VMATH_SLOPE_TERMS 7

SHOALI_VMATH_TABLE float shoali_vmath_normal_tail[SHOALI_VMATH_TAIL_TERMS][SHOALI_VMATH_INTERVALS] =
    {
        {0x1p-1f, 0x1.5e7e82p-2f, 0x1.aa803cp-3f, 0x1.c8944cp-4f, 0x1.aaa65ap-5f, 0x1.59f1f6p-6f,
         0x1.e49ce6p-8f, 0x1.2432ecp-9f, 0x1.2e870cp-11f, 0x1.0c5d58p-13f, 0x1.9744e6p-16f,
         0x1.0800d6p-18f, 0x1.24168ep-21f, 0x1.138becp-24f, 0x1.baf96ap-28f, 0},
        {-0x1.988454p-2f, -0x1.7828ep-2f, -0x1.25ab68p-2f, -0x1.84c6cap-3f, -0x1.b46178p-4f,
         -0x1.9f4b3ep-5f, -0x1.4f18bap-6f, -0x1.ca7fe2p-8f, -0x1.09f38ep-9f, -0x1.0596e2p-11f,
         -0x1.b44eacp-14f, -0x1.3480c8p-16f, -0x1.71e5b8p-19f, -0x1.7808dap-22f, -0x1.441d7cp-25f,
         0},
        {0, 0x1.319e74p-4f, 0x1.dd33aep-4f, 0x1.d9d182p-4f, 0x1.629042p-4f, 0x1.a5cb1p-5f,
         0x1.9868aep-6f, 0x1.45f70cp-7f, 0x1.b025aap-9f, 0x1.de244ap-11f, 0x1.bafaccp-13f,
         0x1.58752p-15f, 0x1.c26556p-18f, 0x1.efca5p-21f, 0x1.cbec3ep-24f, 0},
        {0x1.105708p-4f, 0x1.a2c458p-5f, 0x1.0a254p-6f, -0x1.f727fep-7f, -0x1.dd491cp-6f,
         -0x1.b0bc3ap-6f, -0x1.13faap-6f, -0x1.0ec88ep-7f, -0x1.a7dca2p-9f, -0x1.0d9b94p-10f,
         -0x1.19d442p-12f, -0x1.e7999cp-15f, -0x1.5ec3f6p-17f, -0x1.a52288p-20f, -0x1.a708b4p-23f,
         0},
        {0, -0x1.1e052p-6f, -0x1.715078p-6f, -0x1.dce94p-7f, -0x1.5c5cbap-9f, 0x1.374612p-8f,
         0x1.8ddc2ap-8f, 0x1.144bfep-8f, 0x1.11e75ep-9f, 0x1.a21e08p-11f, 0x1.fc011ep-13f,
         0x1.f427bcp-15f, 0x1.93717p-17f, 0x1.0c938ap-19f, 0x1.28a1e8p-22f, 0},
        {-0x1.446a9cp-7f, -0x1.964f66p-8f, 0x1.413c98p-10f, 0x1.7cd904p-8f, 0x1.5413d2p-8f,
         0x1.07327cp-9f, -0x1.c840b4p-12f, -0x1.2d74e4p-10f, -0x1.c5590ep-11f, -0x1.bc6648p-12f,
         -0x1.43a63p-13f, -0x1.6fe55ap-15f, -0x1.4e8852p-17f, -0x1.edcf2p-20f, -0x1.2a9ebcp-22f, 0},
};

SHOALI_VMATH_TABLE float
    shoali_vmath_normal_slope[SHOALI_VMATH_SLOPE_TERMS][SHOALI_VMATH_INTERVALS] = {
        {0x1p-1f, 0x1.8b5bccp-3f, -0x1.95b268p-6f, -0x1.eb1042p-4f, -0x1.efcb36p-4f,
         -0x1.4f4beep-4f, -0x1.5bd286p-5f, -0x1.21708ep-6f, -0x1.8a5ae8p-8f, -0x1.bcac2ap-10f,
         -0x1.a1ab94p-12f, -0x1.4827c6p-14f, -0x1.b08e6p-17f, -0x1.df4282p-20f, -0x1.bf0162p-23f,
         0},
        {-0x1.98845p-1f, -0x1.591e8p-1f, -0x1.8978aap-2f, -0x1.902aaap-4f, 0x1.178e7p-4f,
         0x1.b973e2p-4f, 0x1.4a3022p-4f, 0x1.5cdb1ep-5f, 0x1.1ca6aap-6f, 0x1.73b942p-8f,
         0x1.8b827cp-10f, 0x1.5a7b68p-12f, 0x1.f730d2p-15f, 0x1.304158p-17f, 0x1.3361bep-20f, 0},
        {0, 0x1.2504fep-2f, 0x1.8e7448p-2f, 0x1.29dfa2p-2f, 0x1.e1faacp-4f, -0x1.a913f4p-8f,
         -0x1.8c6f28p-5f, -0x1.4d0c1ap-5f, -0x1.6283eap-6f, -0x1.180064p-7f, -0x1.5a4c8ep-9f,
         -0x1.5800d2p-11f, -0x1.16748ap-13f, -0x1.72addcp-16f, -0x1.983fd4p-19f, 0},
        {0x1.10548ap-2f, 0x1.681848p-3f, -0x1.21eff6p-7f, -0x1.0f8dd6p-3f, -0x1.112754p-3f,
         -0x1.0ff88ep-4f, -0x1.ffa90ep-8f, 0x1.e8aca4p-7f, 0x1.cd549p-7f, 0x1.e5c608p-8f,
         0x1.6d88d2p-9f, 0x1.a6902cp-11f, 0x1.83960cp-13f, 0x1.1f249cp-15f, 0x1.5b776cp-18f, 0},
        {0, -0x1.9ce1d6p-4f, -0x1.bc5b7cp-4f, -0x1.316ca6p-5f, 0x1.e17248p-6f, 0x1.6c356p-5f,
         0x1.9a4aa4p-6f, 0x1.2dfbf6p-8f, -0x1.e1d4cap-9f, -0x1.eec1d4p-9f, -0x1.f664d2p-10f,
         -0x1.61db2p-11f, -0x1.794868p-13f, -0x1.3c296p-15f, -0x1.a90e36p-18f, 0},
        {-0x1.e4a30cp-5f, -0x1.f20904p-6f, 0x1.593ed8p-6f, 0x1.49ca7ep-5f, 0x1.557922p-6f,
         -0x1.ff0a08p-9f, -0x1.82d5bep-7f, -0x1.d61a3ep-8f, -0x1.87b824p-10f, 0x1.999458p-11f,
         0x1.b2cbfep-11f, 0x1.a17b28p-12f, 0x1.108e34p-13f, 0x1.0ab2cp-15f, 0x1.9797d8p-18f, 0},
        {0, 0x1.556fep-6f, 0x1.18ec7ep-6f, -0x1.bce4b4p-10f, -0x1.7b7736p-7f, -0x1.d55ea4p-8f,
         0x1.ad7424p-13f, 0x1.66019p-9f, 0x1.b36b66p-10f, 0x1.54bc16p-12f, -0x1.51f3aap-13f,
         -0x1.464afap-13f, -0x1.1c325cp-14f, -0x1.4ecdd8p-16f, -0x1.26331cp-18f, 0},
};

SHOALI_VMATH_TABLE float shoali_vmath_tanh_tail[SHOALI_VMATH_TAIL_TERMS][SHOALI_VMATH_INTERVALS] = {
    {0x1p-1f, 0x1.5e83a8p-2f, 0x1.aab8fcp-3f, 0x1.c94f98p-4f, 0x1.ab858ep-5f, 0x1.58efacp-6f,
     0x1.d972e8p-8f, 0x1.0f1ac8p-9f, 0x1.fa19aep-12f, 0x1.7705ep-14f, 0x1.ad1e68p-17f,
     0x1.707accp-20f, 0x1.cd7e28p-24f, 0x1.999a8p-28f, 0x1.f4c0c2p-33f, 0},
    {-0x1.988454p-2f, -0x1.7805dap-2f, -0x1.256718p-2f, -0x1.84bab2p-3f, -0x1.b5d624p-4f,
     -0x1.a28bd4p-5f, -0x1.50f70cp-6f, -0x1.c208ecp-8f, -0x1.e7bfc8p-10f, -0x1.a1de9cp-12f,
     -0x1.131808p-14f, -0x1.0e6338p-17f, -0x1.817cb6p-21f, -0x1.834cd4p-25f, -0x1.0a7f3p-29f, 0},
    {0, 0x1.32aff6p-4f, 0x1.dd08a2p-4f, 0x1.d7d148p-4f, 0x1.613ce2p-4f, 0x1.a789d8p-5f,
     0x1.9edba2p-6f, 0x1.4b959cp-7f, 0x1.a9d35ep-9f, 0x1.acce5ep-11f, 0x1.49388p-13f,
     0x1.765f5ep-16f, 0x1.324026p-19f, 0x1.5e34a8p-23f, 0x1.0ff736p-27f, 0},
    {0x1.11b01p-4f, 0x1.a2ce44p-5f, 0x1.030c92p-6f, -0x1.fcbf5ap-7f, -0x1.d6c87ap-6f,
     -0x1.aacbccp-6f, -0x1.150e1ap-6f, -0x1.165e08p-7f, -0x1.b5df86p-9f, -0x1.09ab1ap-10f,
     -0x1.e530eep-13f, -0x1.4453bap-15f, -0x1.34b318p-18f, -0x1.97068ep-22f, -0x1.69ac42p-26f, 0},
    {0, -0x1.2367bp-6f, -0x1.72d1fap-6f, -0x1.d1289cp-7f, -0x1.40fff6p-9f, 0x1.29385p-8f,
     0x1.7f5de6p-8f, 0x1.153b8ep-8f, 0x1.1ec4e6p-9f, 0x1.b81e2ap-11f, 0x1.f0ca1cp-13f,
     0x1.93f002p-15f, 0x1.ce2bdcp-18f, 0x1.6b33fep-21f, 0x1.7ea542p-25f, 0},
    {-0x1.4bc65ap-7f, -0x1.994e0cp-8f, 0x1.829d54p-10f, 0x1.83f40ap-8f, 0x1.45bc8cp-8f,
     0x1.ec6234p-10f, -0x1.5f8e0cp-12f, -0x1.14882ap-10f, -0x1.c9529p-11f, -0x1.dfd51cp-12f,
     -0x1.5b466ep-13f, -0x1.5c652ep-15f, -0x1.de74p-18f, -0x1.b9cf98p-21f, -0x1.0cd4bap-24f, 0},
};

SHOALI_VMATH_TABLE float shoali_vmath_tanh_slope[SHOALI_VMATH_SLOPE_TERMS][SHOALI_VMATH_INTERVALS] =
    {
        {0x1p-1f, 0x1.8b829p-3f, -0x1.907456p-6f, -0x1.ea377ap-4f, -0x1.f1b93p-4f, -0x1.52da18p-4f,
         -0x1.5f7ebap-5f, -0x1.1e0fp-6f, -0x1.6caa3ap-8f, -0x1.66852p-10f, -0x1.09fb72p-12f,
         -0x1.228eep-15f, -0x1.c7633p-19f, -0x1.f28bb2p-23f, -0x1.73140ep-27f, 0},
        {-0x1.98845p-1f, -0x1.58dfaep-1f, -0x1.890182p-2f, -0x1.94db3ap-4f, 0x1.1055f6p-4f,
         0x1.b9bf44p-4f, 0x1.511d52p-4f, 0x1.66f5d8p-5f, 0x1.1d07eep-6f, 0x1.53cb3p-8f,
         0x1.2c24cep-10f, 0x1.80ecd6p-13f, 0x1.5e0bb6p-16f, 0x1.b8577ap-20f, 0x1.756782p-24f, 0},
        {0, 0x1.25d3cp-2f, 0x1.8d3f3cp-2f, 0x1.27bbc4p-2f, 0x1.e5ed88p-4f, -0x1.dccad6p-9f,
         -0x1.86b24p-5f, -0x1.590278p-5f, -0x1.75f618p-6f, -0x1.1bd90cp-7f, -0x1.33dbdap-9f,
         -0x1.d964d2p-12f, -0x1.fb31f2p-15f, -0x1.72afa6p-18f, -0x1.692014p-22f, 0},
        {0x1.11ad72p-2f, 0x1.67031p-3f, -0x1.64db04p-7f, -0x1.0d46ecp-3f, -0x1.0b12d4p-3f,
         -0x1.116336p-4f, -0x1.50199p-7f, 0x1.d09984p-7f, 0x1.e9ebc8p-7f, 0x1.08d2c4p-7f,
         0x1.748b4cp-9f, 0x1.62b3e4p-11f, 0x1.c92278p-14f, 0x1.899de2p-17f, 0x1.bc811ap-21f, 0},
        {0, -0x1.a42cdcp-4f, -0x1.ba1544p-4f, -0x1.1cd592p-5f, 0x1.d51988p-6f, 0x1.58420cp-5f,
         0x1.9c60b4p-6f, 0x1.8cde28p-8f, -0x1.b2519ep-9f, -0x1.12bb02p-8f, -0x1.1cb6fcp-9f,
         -0x1.63963ep-11f, -0x1.1cce5cp-13f, -0x1.273b3cp-16f, -0x1.88dbd2p-20f, 0},
        {-0x1.ef94acp-5f, -0x1.f1225ep-6f, 0x1.76171p-6f, 0x1.46029cp-5f, 0x1.36508p-6f,
         -0x1.bb27bap-9f, -0x1.56d294p-7f, -0x1.de32a2p-8f, -0x1.1655cap-9f, 0x1.66b1aep-11f,
         0x1.02a778p-10f, 0x1.e995b2p-12f, 0x1.055aecp-13f, 0x1.561a98p-16f, 0x1.174722p-19f, 0},
        {0, 0x1.65dbf6p-6f, 0x1.184ff6p-6f, -0x1.8e976cp-9f, -0x1.6d1628p-7f, -0x1.920176p-8f,
         -0x1.514b76p-13f, 0x1.1d6b8p-9f, 0x1.d19116p-10f, 0x1.1a0dbp-11f, -0x1.4ad254p-13f,
         -0x1.aa34fap-13f, -0x1.5011dp-14f, -0x1.1d31dep-16f, -0x1.1cea02p-19f, 0},
};

#endif
