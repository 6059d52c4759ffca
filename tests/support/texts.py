"""Texts that are hard to split into words: each line has what one of the preparation's rules is about."""

HARD_TEXTS = [
    "'''Twas'' the 'nuff said,' he'd've \"quoted\" '90s 's boys' doin' rock'n'roll 'em. ''x '''x''y",
    "$$#'5km. &x US$5.99 ..a ...b a.. a...b. '..c' #'s. '$'s 5m. 10mm²% 3kg's 10a.m. 12pm 5p.m.",
    "Mr. Smith, Ph.D., met Dr.No at 5 p.m.Then e.g. I.B.M. vs. day.Mr.Smith end.The U.S.A. z.B. o.O K.",
    "don't wouldn't've I'ma I'd. Id. wed. how'd'y c'mon y'all gonna gotta cannot theyllve WHAT'RE mustntve",
    "x=y a:b a<b :D =3 >.< <3 2^3 foo.Bar a@b.co http://x.Yz/a?b=c#d www.Foo.com:80 me@x.com, o'clock",
    "a\r\nb\r\n\r\n c \n \n\td\u00a0e\u2028 - -  - -~  ~ |  | || -- –— … …. “q” ‘r’ „s‚\n \n",
    "&amp;amp; &lt;b &quot;hi&quot; it&#39;s &nbsp;x <b> &gt;\n&lt;i> AT&amp;T",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ aΣ İstanbul ﬁne Ａ１！ ｱﾞ Ĳ ŉ Ǆ \ufeff\x00\x1b[31mred\x1b[0m \x80\x85\x99 e\u0301",
    "\u0301a -\u0301 …\u0301 x\u200d \u200c-",
    "☃☺\ufe0f 👍🏽 👨‍👩‍👧 🇩🇪 ©\ufe0f °C 30° F. ½ ² 漢字。「ひ」 한국어. אב عربي، हिन्दी।",
    "<unk> [s] [$] [e] </w> the</w> {x} [y] (z) *a* _b_ +c+ ;d; !e? \\f ^g^ `h`",
]
